"""What schemathesis is told. About half of the bodies name things that exist, so that requests get behind the door and
links have something to follow; no request waits for work, and none asks for a stream without end."""

import schemathesis

DEFINITION = {
    "kind": "workflow", "name": "generated", "order": "linear",
    "steps": [{"name": "A"}, {"name": "B", "run": "wait", "event": "e", "timeout": "1h"}],
}

# What is written over a generated body of this operation.
KNOWN = {
    "/v1/definitions": DEFINITION,
    "/v1/definitions/validate": DEFINITION,
    "/v1/runs": {"definition": "probe-flow"},
    "/v1/processes": {"definition": "probe-process", "subject_ref": "s"},
    "/v1/runs/trigger": {"type": "probe.asked"},
    "/v1/processes/{instance_id}/gates": {"action": "go"},
    "/v1/processes/{instance_id}/transitions": {"action": "turn"},
    "/v1/processes/{instance_id}/gates/{action}/decision": {"decision": "approve", "reason": "generated"},
    "/v1/runs/{run_id}/gates": {"action": "cancel"},
    "/v1/queues/{queue}/claim": {"worker_id": "generated", "max": 5},
    "/v1/events": {"type": "e"},
}
NAMES = {"queue": "default", "step": "A", "action": "go", "name": "probe-flow", "version": 1, "machine": "step", "code": "not-known"}
turns = {"n": 0}


def every_other():
    turns["n"] += 1
    return turns["n"] % 2 == 0


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict):
        if isinstance(body.get("wait_ms"), int):
            body["wait_ms"] = min(body["wait_ms"], 20)
        known = KNOWN.get(context.operation.path)
        if known and every_other():
            return dict(known) if context.operation.path.startswith(("/v1/definitions", "/v1/runs", "/v1/processes")) else {**body, **known}
    return body


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    if isinstance(path_parameters, dict) and every_other():
        for name in path_parameters:
            path_parameters[name] = NAMES.get(name, path_parameters[name])
    return path_parameters


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Streams have no end; the answer to an export is no JSON."""
    endless = []
    for path, item in raw_schema.get("paths", {}).items():
        for operation in item.values():
            for answer in (operation.get("responses", {}) if isinstance(operation, dict) else {}).values():
                if "text/event-stream" in answer.get("content", {}):
                    endless.append(path)
    for path in endless:
        raw_schema["paths"].pop(path, None)
