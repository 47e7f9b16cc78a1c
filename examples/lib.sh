# Sourced by every `run`: a copy of ./target as a repository, a daemon of its own, and both gone at the end.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
[ -x "$checkout/.venv/bin/sictl" ] && PATH="$checkout/.venv/bin:$PATH"
world=$(mktemp -d)
repo=$world/repo
export SID_SOCKET="$world/sock" SID_STATE_DIR="$world/state" SID_CONFIG="$world/sid.toml"
export GIT_AUTHOR_NAME=example GIT_AUTHOR_EMAIL=example@localhost GIT_COMMITTER_NAME=example GIT_COMMITTER_EMAIL=example@localhost
leave() {
  sictl daemon shutdown --now --yes >/dev/null 2>&1 || true
  rm -rf "$world"
}
trap leave EXIT
trap 'exit 130' INT TERM
cp -R "$here/target" "$repo"
git -C "$repo" init --quiet --initial-branch=main
git -C "$repo" add --all
git -C "$repo" commit --quiet --message=Start
# A machine without bubblewrap can try the examples, too: their agents are harmless.
bwrap --ro-bind / / --unshare-all true 2>/dev/null || sandbox='--set sandbox="off"'
scripted="python3 $here/../scripted_agent.py $here/ideas.json"

# improve ROUNDS INIT-FLAGS...: set up, run, show, and fail unless the score has become better.
improve() {
  rounds=$1
  shift
  sictl init "$repo" --trust "$@" ${sandbox:-}
  sictl start "$repo" --rounds "$rounds" --wait
  sictl history "$repo"
  git --no-pager -C "$repo" log --oneline --first-parent main..improve/"$(git -C "$repo" for-each-ref --format='%(refname:lstrip=3)' refs/heads/improve)"
  [ -n "$(sictl diff "$repo")" ] || { echo "$0: nothing was improved" >&2; exit 1; }
}
