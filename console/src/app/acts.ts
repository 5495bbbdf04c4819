// What a signed statement says of a request (spec/record.md, section 5.2): its action and its instance, by the contract.
import { STATEMENTS } from "@/api/statements";

export interface Act {
  /** As the statement names it. */
  action: string;
  /** The process or run that it is about. */
  instance: string | null;
}

const PATTERNS = STATEMENTS.map(({ path, ...statement }) => ({
  ...statement,
  // The names of a path's parameters are names of groups.
  pattern: new RegExp(`^${path.replaceAll(/\{([^}]*)\}/g, "(?<$1>[^/]+)")}$`),
}));

/** The act that this request is; undefined where it changes nothing. */
export function actOf(method: string, path: string): Act | undefined {
  for (const { method: of, pattern, action, instance } of PATTERNS) {
    const parts = of === method ? pattern.exec(path) : null;
    if (!parts) continue;
    const named = instance && parts.groups?.[instance];
    // A task's id begins with that of its run.
    const id = instance === "task_id" ? named?.replace(/\.[^.]*$/, "") : named;
    return { action, instance: id ?? null };
  }
}
