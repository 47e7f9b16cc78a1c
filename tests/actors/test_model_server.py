"""The model server of the tests is held against the SDK's own types, so that what is tested with it is the API."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

from tests.actors.model_server import events_of, message, model_server, say, text, tool

USAGE = {
    "input_tokens": 5,
    "output_tokens": 7,
    "cache_read_input_tokens": 1,
    "cache_creation_input_tokens": 2,
}
REPLY = say(
    {"type": "thinking", "thinking": "Hm.", "signature": "signed"}, text("Well."), tool("view", path="ü.py")
)


@pytest.fixture(scope="module")
def sdk() -> Any:
    return importlib.import_module("anthropic")


def test_a_reply_is_a_message_of_the_sdk(sdk: Any) -> None:
    whole = sdk.types.Message.model_validate(message("m", REPLY, USAGE))
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    assert whole.stop_reason == "tool_use"


def test_every_event_is_one_of_the_sdk(sdk: Any) -> None:
    adapter = importlib.import_module("pydantic").TypeAdapter(sdk.types.RawMessageStreamEvent)
    events = [event for event in events_of("m", REPLY, USAGE) if event["type"] != "ping"]
    assert [adapter.validate_python(event).type for event in events] == [event["type"] for event in events]


async def test_the_sdk_reads_the_stream_as_the_reply_that_it_is(sdk: Any) -> None:
    async with (
        model_server(lambda body: REPLY) as server,
        sdk.AsyncAnthropic(api_key="test", base_url=server.url, max_retries=0) as client,
    ):
        request = {
            "model": "m",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": "Hi"}],
        }
        async with client.messages.stream(**request) as stream:
            streamed = await stream.get_final_message()
        whole = await client.messages.create(**request)
    assert [block.model_dump() for block in streamed.content] == [
        block.model_dump() for block in whole.content
    ]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == ("tool_use", 50)


async def test_the_sdk_sees_failures_as_what_they_are(sdk: Any) -> None:
    async with (
        model_server() as server,
        sdk.AsyncAnthropic(api_key="test", base_url=server.url, max_retries=0) as client,
    ):
        for model, kind in (
            ("fail-429-1", "RateLimitError"),
            ("fail-529-1", "OverloadedError"),
            ("fail-401-1", "AuthenticationError"),
        ):
            with pytest.raises(getattr(sdk, kind, importlib.import_module("anthropic._exceptions").APIError)):
                await client.messages.create(
                    model=model, max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
                )


def test_a_daemon_without_a_model_does_not_import_the_sdk() -> None:
    code = "import sys, sid_daemon.app, sid_daemon.assembly; print(sorted(m for m in sys.modules if m.split('.')[0] in ('anthropic', 'httpx2')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
