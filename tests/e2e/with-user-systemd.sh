#!/bin/bash
# with-user-systemd.sh COMMAND...: run COMMAND beside a real `systemd --user`, in namespaces of its own; all of it is gone after.
# Needs root, systemd and cgroup v2. Prints "ready PID", PID being what `nsenter --target` takes, before COMMAND starts.
# systemd wants to see a booted system and a cgroup2-only /sys/fs/cgroup: both are made of tmpfs and namespaces here.
set -e
groups=/sys/fs/cgroup
[ -d $groups/unified ] && groups=$groups/unified
[ -f $groups/cgroup.procs ] || { echo "there is no cgroup v2 at $groups" >&2; exit 1; }
own=$groups/sid-test-$$
mkdir $own
trap 'find $own -depth -type d -exec rmdir {} + 2>/dev/null || true' EXIT
(
  echo $BASHPID > $own/cgroup.procs
  exec unshare --mount --pid --fork --kill-child --cgroup --propagation private bash -ec '
    read -r outer rest < /proc/self/stat
    mount -t proc proc /proc
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    user=$(id -u)
    runtime=/run/user/$user
    manager=/sys/fs/cgroup/user.slice/user-$user.slice/user@$user.service
    mkdir -p $manager
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p /run/systemd/system /run/lock $runtime
    chmod 700 $runtime
    export XDG_RUNTIME_DIR=$runtime DBUS_SESSION_BUS_ADDRESS=unix:path=$runtime/bus
    (echo $BASHPID > $manager/cgroup.procs; exec /lib/systemd/systemd --user --log-target=console --log-level=notice) >&2 </dev/null &
    for attempt in $(seq 100); do
      case $(systemctl --user is-system-running 2>/dev/null) in running|degraded) break ;; esac
      sleep 0.1
    done
    systemctl --user show --property=Version >/dev/null
    echo "ready $outer"
    "$@"
  ' with-user-systemd "$@"
)
