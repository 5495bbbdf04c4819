// What a problem is about: its run by subject, where the reader may see runs.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, body } from "@/api/client";
import { useMe } from "@/app/session";
import { Id } from "@/ui/text";

/** A summary of the run; nothing where the reader may not see it. */
function useRun(id: string | null | undefined) {
  const { data: me } = useMe();
  const may = me?.scopes.some((scope) => /^runs:read(:|$)/.test(scope)) ?? false;
  return useQuery({
    queryKey: ["runs", "summary", id],
    enabled: may && !!id,
    retry: false,
    queryFn: async () => {
      const { items } = await body(
        api.GET("/v1/runs", { params: { query: { q: id ?? undefined, limit: 1 } } }),
      );
      return items[0] ?? null;
    },
  }).data;
}

/** The run by its subject, with the error that ended it. */
export function Subject({ run: id, step }: { run: string; step?: string | null }) {
  const run = useRun(id);
  return (
    <>
      {run ? <strong className="font-medium">{run.subject_ref || run.definition}</strong> : <Id value={id} />}
      {step && <span className="text-soft"> / {step}</span>}
    </>
  );
}

export function LastError({ run: id }: { run: string }) {
  const run = useRun(id);
  return run?.last_error ? <>: {run.last_error}</> : null;
}

/** Opens the run, at the step that it is about. */
export function RunLink({ run: id, step }: { run: string; step?: string | null }) {
  const run = useRun(id);
  return (
    <Link
      to="/runs/$id"
      params={{ id }}
      search={step ? { step } : {}}
      className="text-accent underline [overflow-wrap:anywhere]"
    >
      {run?.subject_ref || id}
    </Link>
  );
}
