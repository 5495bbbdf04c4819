// One process: where is it, how did it get here, what next?
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import { useTopic } from "@/api/stream";
import { Failure, Skeleton } from "@/ui/feedback";
import { Id, Moment } from "@/ui/text";
import { StateMachine } from "./machine";
import { NextActions } from "./next";

export function Process() {
  const { t } = useTranslation();
  const { id } = useParams({ from: "/frame/processes/$id" });
  const client = useQueryClient();
  const query = useQuery({
    queryKey: ["processes", id],
    queryFn: () => body(api.GET("/v1/processes/{instance_id}", { params: { path: { instance_id: id } } })),
  });
  useTopic(`process:${id}`, () => void client.invalidateQueries({ queryKey: ["processes", id] }));
  if (query.isPending) return <Skeleton lines={8} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const process = query.data;
  const [history, gates] = [process.transition_history ?? [], process.gates ?? []];
  const open = gates.filter((gate) => gate.state === "Pending");
  return (
    <>
      <header className="mb-5 flex flex-col gap-2">
        <p className="text-xs text-soft">
          <Link to="/processes" className="hover:underline">
            {t("page.processes")}
          </Link>{" "}
          / {process.declaration_ref}
        </p>
        <h1>{process.subject_ref}</h1>
        <p className="flex flex-wrap items-baseline gap-x-5 gap-y-1 text-sm">
          <span className="rounded-md border-2 border-ink px-3 py-1 font-serif text-lg">
            {process.current_state}
          </span>
          <span className="text-soft">
            {t("run.startedBy", { who: process.initiator_ref })} <Moment at={process.started_at} />
          </span>
          <Id value={process.instance_id} />
        </p>
        {open.map((gate) => (
          <p key={gate.step_id} className="text-sm">
            {t("process.waits", { who: gate.approver_ref, action: gate.action })}{" "}
            <Link to="/gate/$step" params={{ step: gate.step_id }} className="text-accent underline">
              {t("process.openGate")}
            </Link>
          </p>
        ))}
      </header>
      <StateMachine process={process} />
      <NextActions id={id} sequence={history.length + gates.length} />
      <h2 className="mt-8 mb-2">{t("process.history")}</h2>
      {history.length === 0 ? (
        <p className="text-soft">{t("process.noHistory")}</p>
      ) : (
        <ol className="flex flex-col border-l-2 border-line pl-5">
          {history.map((entry) => (
            <li key={entry.event_id} className="pb-3 text-sm">
              <strong className="font-medium">{entry.action}</strong>: {entry.from_state} → {entry.to_state}
              <span className="ml-2 text-xs text-soft">
                {entry.actor_ref} · <Moment at={entry.fired_at} />
                {entry.guard_satisfied && ` · ${t("process.approved")}`}
              </span>
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
