"""The method table: what callers may say, and that its description of itself is valid."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from sid_protocol.errors import UsageError
from sid_protocol.params import ConfigParams
from sid_protocol.records import AgentSettings, BenchmarkResult, MergeReport, RawEntry, Record
from sid_protocol.rpc import METHODS, check_params, openrpc_document
from sid_protocol.status import RunRow

META = json.loads((Path(__file__).parent / "data/openrpc-meta-schema.json").read_text())
# The meta-schema leaves the schemas inside a document to JSON Schema's own meta-schema.
JSON_SCHEMA = {
    "$ref": "http://json-schema.org/draft-07/schema#",
    "definitions": {"JSONSchemaObject": {"properties": {"$ref": {"type": "string"}}}},
}


def meta_validator() -> jsonschema.Draft7Validator:
    draft = Resource.from_contents(jsonschema.Draft7Validator.META_SCHEMA, DRAFT7)
    tools = Resource.from_contents(JSON_SCHEMA, DRAFT7)
    registry: Registry[Any] = Registry().with_resources(
        [
            ("http://json-schema.org/draft-07/schema", draft),
            ("https://meta.json-schema.tools", tools),
            ("https://meta.json-schema.tools/", tools),
        ]
    )
    return jsonschema.Draft7Validator(META, registry=registry)


def refusal(name: str, values: object) -> str:
    with pytest.raises(UsageError) as caught:
        check_params(METHODS[name], values)
    assert caught.value.data["field"]
    return caught.value.message


def test_the_promised_methods_are_all_there() -> None:
    promised = (
        "daemon.info daemon.shutdown run.init run.start run.list run.status run.cancel run.pause run.resume "
        "run.history run.round run.idea run.config run.diff run.apply run.plot run.export log.subscribe "
        "log.unsubscribe rpc.discover"
    )
    assert set(promised.split()) <= set(METHODS)


def test_an_empty_topic_is_a_topic() -> None:
    assert check_params(METHODS["run.init"], {"repo": "/r", "topic": ""}).model_dump()["topic"] == ""


def test_a_runs_row_begins_as_promised() -> None:
    promised = (
        "run_id repo topic root status iteration max_iterations current_step best_score baseline interval "
        "counters budget actors"
    )
    assert list(RunRow.model_fields)[:14] == promised.split()


@pytest.mark.parametrize("record", [BenchmarkResult, MergeReport, AgentSettings, RawEntry])
def test_exact_scores_have_no_measurement_on_the_wire(record: type[Record]) -> None:
    exact, noisy = ({"measurement": value} for value in (None, {"n": 1}))
    assert "measurement" not in record.model_construct(None, **exact).model_dump(warnings=False)
    assert record.model_construct(None, **noisy).model_dump(warnings=False)["measurement"] == {"n": 1}


def test_the_document_is_valid_openrpc() -> None:
    document = json.loads(json.dumps(openrpc_document("1.2.3")))

    errors = [f"{list(e.absolute_path)}: {e.message[:200]}" for e in meta_validator().iter_errors(document)]
    assert errors == []
    assert [method["name"] for method in document["methods"]] == list(METHODS)
    assert document["info"]["version"] == "1.2.3"
    for method in document["methods"]:  # a rule of OpenRPC that its meta-schema cannot say
        required = [param["required"] for param in method["params"]]
        assert required == sorted(required, reverse=True), method["name"]


@pytest.mark.parametrize(
    "harm",
    [
        lambda d: d.pop("info"),
        lambda d: d["methods"][0].pop("params"),
        lambda d: d["methods"][2]["params"][0].update(schema={"type": "no such type"}),
        lambda d: d["components"]["schemas"].update(Bad={"required": 3}),
    ],
)
def test_the_meta_schema_would_see_a_fault(harm) -> None:
    document = json.loads(json.dumps(openrpc_document("1")))
    harm(document)
    assert not meta_validator().is_valid(document)


def test_every_reference_in_the_document_leads_somewhere() -> None:
    text = json.dumps(openrpc_document("1"))
    names = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert names <= set(openrpc_document("1")["components"]["schemas"])
    assert "#/$defs/" not in text


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda m: m.name)
def test_every_method_describes_itself(method) -> None:
    assert method.summary.endswith(".")
    assert method.params.__doc__
    assert method.result.__doc__


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("run.status", None, "run: is missing"),
        ("run.status", ["abcd"], "parameters are by name"),
        ("run.status", {"run": "abcd", "now": True}, "now: is not a parameter"),
        ("run.status", {"run": 7}, "run: input should be a valid string"),
        ("run.status", {"run": "a\0bc"}, "NUL"),
        ("run.status", {"run": "\ud800abc"}, "run: input should be a valid string"),
        ("run.status", {"run": "../there"}, "run: must be a run id"),
        ("run.status", {"run": "."}, "run: must be a run id"),
        ("run.cancel", {"run": "abcd", "now": 1}, "now: input should be a valid boolean"),
        ("run.start", {"repo": "here"}, "repo: must be an absolute path"),
        ("run.start", {"repo": "/r", "root": "there"}, "root: must be an absolute path"),
        ("run.start", {"repo": "/r", "rounds": "3"}, "rounds: input should be a valid integer"),
        ("run.start", {"repo": "/r", "rounds": 0}, "rounds: input should be greater than"),
        ("run.init", {"repo": "/r", "agents": True}, "agents: input should be a valid integer"),
        ("run.init", {"repo": "/r", "scope": "src"}, "scope: input should be a valid list"),
        ("run.init", {"repo": "/r", "set": {"a": [{"b": "\0"}]}}, "set: must not hold a NUL"),
        ("run.init", {"repo": "/r", "set": {"a": {"\0": 1}}}, "set: must not hold a NUL"),
        ("run.init", {"repo": "/r", "direction": "up"}, "direction: input should be 'higher' or 'lower'"),
        ("run.config", {"run": "abcd", "value": 1}, "value needs a key"),
        ("run.idea", {"run": "abcd", "text": ""}, "text: string should have at least 1"),
        ("run.idea", {"run": "abcd", "text": " \n"}, "text: must not be blank"),
        ("log.subscribe", {"since": -1}, "since: input should be greater"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(name: str, values: object, said: str) -> None:
    assert said in refusal(name, values)


def test_null_is_a_value_and_absence_is_none() -> None:
    read = check_params(METHODS["run.config"], {"run": "abcd", "key": "target_value"})
    cleared = check_params(METHODS["run.config"], {"run": "abcd", "key": "target_value", "value": None})

    assert isinstance(read, ConfigParams)
    assert isinstance(cleared, ConfigParams)
    assert (read.sets, cleared.sets) == (False, True)


def test_a_whole_number_is_a_score() -> None:
    assert check_params(METHODS["run.init"], {"repo": "/r", "target": 3}).model_dump()["target"] == 3.0


def test_importing_the_table_builds_no_schema() -> None:
    code = (
        "from sid_protocol import params, status\n"
        "built = [m for m in (params.InitParams, status.RunRow) if m.__pydantic_complete__]\n"
        "raise SystemExit(len(built))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
