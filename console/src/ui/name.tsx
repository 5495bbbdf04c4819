// What an actor is called, with the reference in the title. All names of a page are asked for together.
import { useQuery } from "@tanstack/react-query";
import { api, body } from "@/api/client";

const AT_ONCE = 50;
type Waiting = { found: (name: string | null) => void; failed: (error: unknown) => void };
let waiting = new Map<string, Waiting[]>();

function load(ref: string): Promise<string | null> {
  return new Promise((found, failed) => {
    if (waiting.size === 0) setTimeout(ask, 10);
    waiting.set(ref, [...(waiting.get(ref) ?? []), { found, failed }]);
  });
}

async function ask() {
  const asked = [...waiting];
  waiting = new Map();
  for (let at = 0; at < asked.length; at += AT_ONCE) {
    const part = asked.slice(at, at + AT_ONCE);
    const refs = part.map(([ref]) => ref).join(",");
    try {
      const { items } = await body(api.GET("/v1/actors/names", { params: { query: { refs } } }));
      const names = new Map(items.map((item) => [item.actor_ref, item.display_name]));
      for (const [ref, all] of part) for (const one of all) one.found(names.get(ref) ?? null);
    } catch (error) {
      for (const [, all] of part) for (const one of all) one.failed(error);
    }
  }
}

/** The name, or the reference where there is none. */
export function useName(ref: string | null | undefined): string {
  const query = useQuery({
    queryKey: ["name", ref],
    queryFn: () => load(ref ?? ""),
    // A list of references is separated by commas.
    enabled: Boolean(ref) && !ref?.includes(","),
    staleTime: Number.POSITIVE_INFINITY,
  });
  return query.data ?? ref ?? "";
}

export function Name({ of }: { of: string }) {
  const name = useName(of);
  return <span title={of}>{name}</span>;
}
