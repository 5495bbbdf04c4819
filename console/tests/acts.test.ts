import { expect, it } from "vitest";
import { actOf } from "@/app/acts";
import openapi from "../openapi.json";

/** Posts that leave no record. */
const NO_RECORD = [
  "/v1/me/passkeys/options",
  "/v1/session",
  "/v1/session/options",
  "/v1/definitions/validate",
  "/v1/ledger/verify",
  "/v1/ledger/verify-log",
  "/v1/ledger/seal",
  "/v1/outbox/{outbox_id}/replay",
  "/v1/tasks/{task_id}/heartbeat",
];

it("names every post of the contract that leaves a record", () => {
  for (const [path, item] of Object.entries(openapi.paths)) {
    if (!("post" in item)) continue;
    const address = path.replaceAll(/\{[^}]*\}/g, "x.1");
    expect([path, actOf(address) !== undefined]).toEqual([path, !NO_RECORD.includes(path)]);
  }
});

it("says which process or run an act is about", () => {
  expect(actOf("/v1/processes")).toEqual({ action: "start_workflow", instance: null });
  expect(actOf("/v1/processes/p-1/transitions")).toEqual({ action: "fire_transition", instance: "p-1" });
  expect(actOf("/v1/runs/trigger")).toEqual({ action: "dispatch_run", instance: null });
  expect(actOf("/v1/runs/r-1/cancel")).toEqual({ action: "cancel_run", instance: "r-1" });
  expect(actOf("/v1/runs/r-1/steps/pack%2Fscan/claim")).toEqual({ action: "claim_step", instance: "r-1" });
  expect(actOf("/v1/tasks/r-1.4/complete")).toEqual({ action: "complete", instance: "r-1" });
  expect(actOf("/v1/runs/r-1/steps/pack/history")).toBeUndefined();
});
