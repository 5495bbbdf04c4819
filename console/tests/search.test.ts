import { describe, expect, test } from "vitest";
import { signInSearch, wayBack } from "@/app/search";

describe("the way back after signing in", () => {
  test("leads to where the person was", () => {
    expect(wayBack("/ledger?actor_ref=clerk")).toBe("/ledger?actor_ref=clerk");
    expect(wayBack(undefined)).toBe("/inbox");
  });

  test("never leads to another site", () => {
    for (const address of [
      "https://evil.example",
      "//evil.example",
      "/\\\\evil.example",
      "javascript:alert(1)",
      "",
    ])
      expect(wayBack(address)).toBe("/inbox");
  });

  test("says why only in words that the page knows", () => {
    expect(signInSearch({ why: "idle", next: "/runs" })).toEqual({ why: "idle", next: "/runs" });
    expect(signInSearch({ why: "<b>" })).toEqual({ why: undefined, next: undefined });
  });
});
