"""A node's model and judge as jobs: what each may see, write and take.

Made once a run by `nodes`. In the sandbox the model reads the node's folder and what its command names, and writes nothing
but what the user listed; the judge writes the folder of the run and has no network. Without the sandbox, by the user's
explicit wish, both are the user's own programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sid_actors.backends.command.visible import agent_paths, resolve_command
from sid_actors.jobs.job import JobLimits, JobResult, JobSpec
from sid_actors.jobs.process import run_job
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_actors.workbench.sandbox.toolchain import Toolchain, find_toolchain
from sid_daemon.nodes.folder import NodeFolder, RunFolder
from sid_protocol.errors import Refused, SettingsInvalid
from sid_protocol.params import NodeParams

MODEL_LIMIT_S = 1800.0
"""As long as an executor's turn may take by default."""
JUDGE_LIMIT_S = 300.0
GRACE_S = 2.0
PASSED_ON = ("HOME", "LANG", "TERM", "USER")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJobs:
    """Starts the model and the judge of one node.

    Attributes:
        node: The node.
        argv: The model's command.
        env: What the model is given of the environment.
        readable: What the model may read beside the node's folder.
        writable: What the user lets it write.
        judge_env: What the judge is given of the environment.
        home: HOME, an empty folder in the sandbox.
        tools: PATH, and the folders that its interpreters need.
        contained: Whether there is a sandbox.
    """

    node: NodeFolder
    argv: tuple[str, ...]
    env: dict[str, str]
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    judge_env: dict[str, str]
    home: str
    tools: Toolchain
    contained: bool

    async def model(self, run: RunFolder, number: int, prompt: bytes) -> JobResult:
        """Ask the model for one answer.

        Raises:
            JobStartError: it could not be started.
        """
        folder = str(self.node.path)
        return await run_job(
            JobSpec(
                argv=self.argv,
                cwd=folder,
                env={**self.env, **self._own_env(run, number)},
                stdin=prompt,
                deadline_s=MODEL_LIMIT_S,
                grace_s=GRACE_S,
                limits=JobLimits(output_mb=1),
                sandbox=self._box(folder, (folder, *self.readable), self.writable, network=True),
            )
        )

    async def judge(self, run: RunFolder, number: int) -> JobResult:
        """Let the judge look at the run's folder and add what it says to the events.

        Raises:
            JobStartError: it could not be started.
        """
        folder = str(run.path)
        return await run_job(
            JobSpec(
                argv=("bash", str(self.node.path / "judge.sh"), folder, str(number)),
                cwd=folder,
                env={**self.judge_env, **self._own_env(run, number)},
                deadline_s=JUDGE_LIMIT_S,
                limits=JobLimits(output_mb=1),
                sandbox=self._box(folder, (str(self.node.path),), (folder,), network=False),
            )
        )

    def _own_env(self, run: RunFolder, number: int) -> dict[str, str]:
        return {
            "NODE_NAME": run.node,
            "RUN_ID": run.run_id,
            "ROUND": str(number),
            "BANS_FILE": str(self.node.path / "BANS.md"),
            "SEED_FILE": str(run.path / "seed.md"),
        }

    def _box(
        self, workdir: str, readable: tuple[str, ...], writable: tuple[str, ...], *, network: bool
    ) -> Sandbox | None:
        if not self.contained:
            return None
        return Sandbox(
            workdir=workdir,
            writable=writable,
            readable=(*self.tools.readable, *readable),
            sealed=(),
            network=network,
            home=self.home,
        )


def node_jobs(
    node: NodeFolder, params: NodeParams, *, contained: bool, environ: Mapping[str, str]
) -> NodeJobs:
    """Find a node's model and what it needs; blocks while it asks the interpreters of PATH.

    Raises:
        Refused: there is no model, or it cannot be started.
    """
    home, path = environ.get("HOME", "/"), environ.get("PATH", "/usr/bin:/bin")
    command, base = params.model, params.cwd
    if command is None:
        command, base = node.own_model, str(node.path)
    if command is None:
        raise Refused(
            "no model is named",
            hint="give --model COMMAND, such as --model 'claude -p', or put a program 'model' into the node",
        )
    try:
        program = resolve_command(command, repo=base, home=home, path=path)
        shown, writable = agent_paths(params.agent_paths, repo=base, home=home)
    except SettingsInvalid as error:
        raise Refused(f"the model {command!r}: {error.why}", hint=error.hint) from None
    tools = find_toolchain(path, home=home)
    passed = {name: environ[name] for name in PASSED_ON if name in environ} | {"PATH": tools.path}
    given = {name: environ[name] for name in params.agent_env if name in environ}
    return NodeJobs(
        node=node,
        argv=program.argv,
        env={**given, **passed},
        readable=(*program.shown, *shown),
        writable=writable,
        judge_env=passed,
        home=home,
        tools=tools,
        contained=contained,
    )
