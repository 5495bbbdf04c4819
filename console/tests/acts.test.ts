import { afterEach, expect, it, vi } from "vitest";
import { api, onAct } from "@/api/client";
import { actOf } from "@/app/acts";
import openapi from "../openapi.json";

afterEach(() => vi.unstubAllGlobals());

it("names every operation of the contract as the server describes it", () => {
  let statements = 0;
  for (const [path, item] of Object.entries(openapi.paths))
    for (const [method, operation] of Object.entries(item)) {
      const address = path.replaceAll(/\{[^}]*\}/g, "x.1");
      const described = (operation as { "x-countersign-statement"?: { action: string } })[
        "x-countersign-statement"
      ];
      expect([method, path, actOf(method.toUpperCase(), address)?.action]).toEqual([
        method,
        path,
        described?.action,
      ]);
      if (described) statements += 1;
    }
  expect(statements).toBeGreaterThan(50);
});

it("says which process or run an act is about", () => {
  const of = (path: string, method = "POST") => actOf(method, path);
  expect(of("/v1/processes")).toEqual({ action: "start_workflow", instance: null });
  expect(of("/v1/processes/p-1/transitions")).toEqual({ action: "fire_transition", instance: "p-1" });
  expect(of("/v1/runs/trigger")).toEqual({ action: "dispatch_run", instance: null });
  expect(of("/v1/runs/r-1/cancel")).toEqual({ action: "cancel_run", instance: "r-1" });
  expect(of("/v1/runs/r-1/steps/pack%2Fscan/claim")).toEqual({ action: "claim_step", instance: "r-1" });
  expect(of("/v1/tasks/r-1.4/complete")).toEqual({ action: "complete", instance: "r-1" });
  expect(of("/v1/tasks/r-1.4/cannot-complete")).toEqual({ action: "cannot_complete", instance: "r-1" });
  expect(of("/v1/actors/ada/delegations")).toEqual({ action: "make_delegation", instance: null });
  expect(of("/v1/runs/r-1/steps/pack/history", "GET")).toBeUndefined();
});

it("signs what changes something, whatever its method, and nothing twice", async () => {
  const sent: Request[] = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    sent.push(request);
    return Response.json({});
  });
  const asked: string[][] = [];
  onAct(async (method, path, bytes) => {
    asked.push([method, path, bytes]);
    return { "Countersign-Statement": "signed" };
  });
  const baseUrl = "http://localhost/";
  const path = { actor_ref: "ada", delegation_id: "d-1" };
  await api.DELETE("/v1/actors/{actor_ref}/delegations/{delegation_id}", {
    baseUrl,
    params: { path },
  });
  await api.POST("/v1/grants", { baseUrl, body: { subject_ref: "ada", action_scope: "runs:read" } });
  await api.GET("/v1/me", { baseUrl });
  const preview = { baseUrl, params: { path: { run_id: "r-1", step: "pack" }, query: { preview: true } } };
  await api.POST("/v1/runs/{run_id}/steps/{step}/claim", { ...preview, body: {} });
  const headers = { "Countersign-Statement": "by the caller" };
  await api.POST("/v1/grants/{grant_id}/revoke", {
    baseUrl,
    params: { path: { grant_id: "g" } },
    body: {},
    headers,
  });
  expect(asked).toEqual([
    ["DELETE", "/v1/actors/ada/delegations/d-1", ""],
    ["POST", "/v1/grants", '{"subject_ref":"ada","action_scope":"runs:read"}'],
  ]);
  expect(sent.map((request) => request.headers.get("countersign-statement"))).toEqual([
    "signed",
    "signed",
    null,
    null,
    "by the caller",
  ]);
});
