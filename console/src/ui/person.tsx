// A person by name. Names are asked for in one call for all that a page shows.
import { useQueries, useQuery } from "@tanstack/react-query";
import { api, body } from "@/api/client";

let wanted: { ref: string; done: (name: string | undefined) => void; failed: (error: unknown) => void }[] =
  [];

async function flush() {
  const asked = wanted.slice(0, 100);
  wanted = wanted.slice(100);
  if (wanted.length > 0) setTimeout(flush);
  const refs = [...new Set(asked.map((one) => one.ref))];
  try {
    const { items } = await body(
      api.GET("/v1/actors/names", { params: { query: { refs: refs.join(",") } } }),
    );
    const names = new Map(items.map((item) => [item.actor_ref, item.display_name ?? undefined]));
    for (const one of asked) one.done(names.get(one.ref));
  } catch (error) {
    for (const one of asked) one.failed(error);
  }
}

function nameOf(ref: string): Promise<string | undefined> {
  return new Promise((done, failed) => {
    if (wanted.length === 0) setTimeout(flush);
    wanted.push({ ref, done, failed });
  });
}

/** Expressions such as `${input.owner}` name a person only when the run starts. */
const isRef = (ref: string | undefined | null): ref is string => !!ref && /^[\w.:@-]+$/.test(ref);

const named = (ref: string | undefined | null) => ({
  queryKey: ["names", ref],
  enabled: isRef(ref),
  staleTime: Number.POSITIVE_INFINITY,
  retry: false,
  queryFn: async () => (await nameOf(ref ?? "")) ?? null,
});

export function useName(ref: string | undefined | null): string {
  const { data } = useQuery(named(ref));
  return data ?? ref ?? "";
}

/** Several people in one sentence: "Maria Santos, Jonas Meyer". */
export function useNames(refs: string[]): string {
  const all = useQueries({ queries: refs.map(named) });
  return refs.map((ref, at) => all[at]?.data ?? ref).join(", ");
}

export function Person({ who }: { who: string }) {
  const name = useName(who);
  return (
    <span title={who} className="[overflow-wrap:anywhere]">
      {name}
    </span>
  );
}

/** Two letters for a small mark: "Maria Santos" is MS, `qp_director` is QD. */
export function initials(name: string): string {
  const words = name.split(/[\s_.:@-]+/).filter(Boolean);
  const letters = words.length > 1 ? [words[0]?.[0], words.at(-1)?.[0]] : [words[0]?.slice(0, 2)];
  return letters.join("").toUpperCase();
}
