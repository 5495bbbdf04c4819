// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";

const MINUTE = 60_000;

beforeEach(() => {
  vi.useFakeTimers();
  vi.resetModules();
});
afterEach(() => {
  vi.useRealTimers();
});

async function page() {
  const idle = await import("@/app/idle");
  const end = vi.fn();
  idle.onIdle({ touch: () => {}, end, begun: () => {} });
  return { idle, end };
}

test("a person who does nothing is signed out", async () => {
  const { idle, end } = await page();
  idle.arrives();
  idle.lasts(15 * MINUTE);
  vi.advanceTimersByTime(14 * MINUTE);
  expect(end).not.toHaveBeenCalled();
  vi.advanceTimersByTime(MINUTE + 1000);
  expect(end).toHaveBeenCalledWith("idle");
});

test("time on the page of the sign-in is no absence", async () => {
  const { idle, end } = await page();
  vi.advanceTimersByTime(60 * MINUTE);
  idle.arrives();
  idle.lasts(15 * MINUTE);
  vi.advanceTimersByTime(5000);
  expect(end).not.toHaveBeenCalled();
});
