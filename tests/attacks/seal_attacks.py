"""Attacks on the judge and on git: each a script for the shell in a worktree, after a score that is not honest."""

EVIL = "print(999.0)"
GIT = "git -c user.name=e -c user.email=e@e.invalid"

SEALED = {
    "edit": f"echo '{EVIL}' > bench.py",
    "append": "echo 'print(999.0)' >> bench.py",
    "edit with old times": f"touch -r bench.py /tmp/$$; echo '{EVIL}' > bench.py; touch -r /tmp/$$ bench.py; rm /tmp/$$",
    "edit the judge": "sed -i 's/return .*/return 999.0/' judge/check.py",
    "widen the judge": "sed -i 's/LIMIT = 50/LIMIT = 999/' judge/check.py; sed -i 's/float(min/float(max/' judge/check.py",
    "new file over it": f"echo '{EVIL}' > new; chmod --reference=bench.py new; mv -f new bench.py",
    "hard link over it": f"echo '{EVIL}' > mine.py; ln -f mine.py bench.py",
    "symlink to mine": f"echo '{EVIL}' > mine.py; ln -sf mine.py bench.py",
    "symlink in the sealed folder": "echo 'def score(v): return 999.0' > m.py; ln -sf ../m.py judge/check.py",
    "delete and shadow": "rm judge/check.py; mkdir judge/check; echo 'def score(v): return 999.0' > judge/check/__init__.py",
    "addition in the sealed folder": "mkdir judge/check; echo 'def score(v): return 999.0' > judge/check/__init__.py",
    "ignored addition": "echo judge/check/ >> .gitignore; mkdir judge/check; echo 'def score(v): return 999.0' > judge/check/__init__.py",
    "addition that git excludes": "echo judge/check/ >> $(git rev-parse --git-common-dir)/info/exclude; mkdir judge/check;"
    " echo 'def score(v): return 999.0' > judge/check/__init__.py",
    "rename the parent": "mv judge was; cp -r was judge; echo 'def score(v): return 999.0' > judge/check.py",
    "link the parent": "mv judge was; echo 'def score(v): return 999.0' > was/check.py; ln -s was judge",
    "replace the parent": "rm -rf judge; mkdir judge; echo 'def score(v): return 999.0' > judge/check.py",
    "assume unchanged": f"git update-index --assume-unchanged bench.py; echo '{EVIL}' > bench.py",
    "skip worktree": f"git update-index --skip-worktree bench.py; echo '{EVIL}' > bench.py",
    "commit of its own": f"echo '{EVIL}' > bench.py; {GIT} commit -qam mine",
    "start-up file": "echo 'print(999.0); import os, sys; sys.stdout.flush(); os._exit(0)' > sitecustomize.py",
    "start-up file of users": "echo 'print(999.0); import os, sys; sys.stdout.flush(); os._exit(0)' > sitecustomize.py;"
    " cp sitecustomize.py usercustomize.py",
    "git file replaced": f"rm -rf .git; git init -q; echo '{EVIL}' > bench.py; {GIT} add -A; {GIT} commit -qm all",
    "nested repository": f"git init -q lib; echo '{EVIL}' > bench.py",
}
"""Each wins a forged score where nothing guards."""

SILENT = {
    "mode": "chmod 755 bench.py",
    "delete": "rm bench.py",
    "pipe in its place": "rm judge/expected.json; mkfifo judge/expected.json",
    "case twin": "echo x > Bench.py",
    "case twin of the folder": "mkdir Judge; echo x > Judge/check.py",
    "git file edited": "echo gitdir: /nowhere > .git",
    "git file linked": "mv .git g; ln -s g .git",
    "attributes": "echo '*.py filter=evil' > .gitattributes",
    "submodules": "echo '[submodule \"x\"]' > .gitmodules",
    "workflow": "mkdir -p .github/workflows; echo x > .github/workflows/x.yml",
    "conftest": "echo 'import os' > conftest.py",
    "settings of pytest": "printf '[pytest]\\naddopts = [\"-x\"]\\n' > .pytest.toml",
    "path file": "echo 'import os' > lib/x.pth",
    "newline in a name": "echo x > $'a\\nb.py'",
    "escape in a name": "echo x > $'a\\e[2Jb.py'",
    "bidi in a name": "echo x > $'a\\u202eyp.b'",
    "nested repository with commits": f"git init -q in; echo x > in/f; {GIT} -C in add f; {GIT} -C in commit -qm x",
}
"""Each prepares a later one, or breaks what others rely on; there is no score to be forged at once."""

UNMEASURED = {
    "compiled twin": "python3 - <<'E'\nimport py_compile\nopen('/tmp/e.py','w').write('def score(v): return 999.0')\n"
    "py_compile.compile('/tmp/e.py', 'judge/__pycache__/check.cpython-%d%d.pyc' % __import__('sys').version_info[:2],"
    " invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)\nE",
    "leftover beside the program": "mkdir -p build; echo x > build/out; echo 'VALUE = 49' > app.log",
}
"""Work in the folder as it lies there, but are never committed: what is measured has nothing of it."""
