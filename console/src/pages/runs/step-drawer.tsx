// Why is this step as it is? State and since when, error, attempts, checks and pins, gate, tasks, data, and what can be done.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Check, CircleHelp, X } from "lucide-react";
import { type ReactNode, useEffect, useRef } from "react";
import { api, body } from "@/api/client";
import type { SchemaStepDetail } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import { condition, type Step } from "@/graph/model";
import { Facets } from "@/graph/step-node";
import { Button } from "@/ui/button";
import { Failure, Skeleton } from "@/ui/feedback";
import { Person } from "@/ui/person";
import { StateChip, StateMark } from "@/ui/state";
import { Id, Moment } from "@/ui/text";
import { plain, useTexts } from "@/ui/texts";
import { duration } from "@/ui/time";
import { Values } from "@/ui/values";
import { Decider } from "../gate/deciders";
import { Actions } from "./actions";
import { stepQuery } from "./reason";
import { Records } from "./records";

export function StepDrawer({
  runId,
  step,
  sequence,
  again,
  onClose,
}: {
  runId: string;
  step: Step;
  sequence: number;
  /** Of a run that has ended: what begins a new one here. */
  again?: ReactNode;
  onClose: () => void;
}) {
  const { t } = useTranslation();
  const box = useRef<HTMLElement>(null);
  const query = useQuery({
    ...stepQuery(runId, step.name, sequence),
    placeholderData: (before) => (before?.name === step.name ? before : undefined),
  });
  const detail = query.data;
  useEffect(() => {
    const close = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) onClose();
    };
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, [onClose]);
  return (
    <aside
      ref={box}
      aria-label={step.name}
      className="fixed inset-0 z-40 overflow-y-auto bg-page px-5 py-4 lg:sticky lg:inset-auto lg:top-18 lg:z-0 lg:max-h-[calc(100dvh-6rem)] lg:w-[26rem] lg:shrink-0 lg:rounded-lg lg:border lg:border-line"
    >
      <div className="mb-2 flex items-start justify-between gap-3">
        <div className="min-w-0">
          <p className="kicker">{t("drawer.step", { number: Number(step.id.split("/").at(-1)) + 1 })}</p>
          <h2 className="[overflow-wrap:anywhere]">{step.name}</h2>
        </div>
        <Button look="quiet" small aria-label={t("common.close")} onClick={onClose}>
          <X aria-hidden size={18} />
        </Button>
      </div>
      {query.isError && <Failure error={query.error} retry={() => void query.refetch()} />}
      {!detail && query.isPending && <Skeleton lines={6} />}
      {detail && (
        <div className="flex flex-col gap-5 pb-6">
          <Standing detail={detail} runId={runId} step={step} sequence={sequence} />
          <Actions runId={runId} step={step.name} gates={detail.gates} sequence={sequence} />
          {again}
          <Attempts detail={detail} />
          <Judged detail={detail} />
          <Approvals detail={detail} />
          <Tasks detail={detail} />
          {detail.input !== undefined && (
            <Folded title={t("run.input")}>
              <Values value={detail.input} />
            </Folded>
          )}
          {detail.output !== undefined && (
            <Folded title={t("run.output")}>
              <Values value={detail.output} />
            </Folded>
          )}
          <Folded title={t("run.records")}>
            <Records runId={runId} step={step.name} sequence={sequence} />
          </Folded>
        </div>
      )}
    </aside>
  );
}

/** State, since when, and why. */
function Standing({
  detail,
  runId,
  step,
  sequence,
}: {
  detail: SchemaStepDetail;
  runId: string;
  step: Step;
  sequence: number;
}) {
  const { t } = useTranslation();
  const says = useTexts();
  const history = useQuery({
    queryKey: ["runs", runId, "history", step.name, sequence],
    retry: false,
    queryFn: () =>
      body(
        api.GET("/v1/runs/{run_id}/steps/{step}/history", {
          params: { path: { run_id: runId, step: step.name } },
        }),
      ),
  });
  const visit = history.data?.visits.at(-1);
  const state = detail.derived_state ?? detail.state_code;
  const waits = [detail.waiting_facet, ...(detail.secondary_facets ?? [])];
  const facets = waits.flatMap((facet) => (facet ? [says(`facet.${facet}.label`)] : []));
  const took =
    detail.started_at && detail.completed_at
      ? duration(Date.parse(detail.completed_at) - Date.parse(detail.started_at))
      : undefined;
  return (
    <div className="flex flex-col gap-3">
      <p className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <StateChip
          token={detail.appearance.color_token}
          icon={detail.appearance.icon}
          words={says(`state.${state}.label`)}
          title={says(`state.${state}.short`)}
        />
        {facets.length > 0 && <Facets facets={facets} />}
        {visit && (
          <span className="text-xs text-soft">
            {t("drawer.since")} <Moment at={visit.at} />, <Person who={visit.actor_ref} />
          </span>
        )}
      </p>
      {detail.last_error && (
        <p className="border-l-[3px] border-bad bg-bad-wash px-3 py-2 [overflow-wrap:anywhere]">
          {detail.last_error}
          {detail.error_category && (
            <span className="block text-xs text-soft">{plain(detail.error_category)}</span>
          )}
        </p>
      )}
      {detail.effect_unknown && (
        <p className="flex gap-2 border-l-[3px] border-warn bg-warn-wash px-3 py-2">
          <CircleHelp aria-hidden size={17} className="mt-0.5 shrink-0 text-warn" />
          {t("drawer.effectUnknown")}
        </p>
      )}
      {(detail.block_reason || visit?.reason) && (
        <p>
          {detail.block_reason && says(`vocab.block_reason.${detail.block_reason}`)}
          {visit?.reason && <span className="font-serif"> “{visit.reason}”</span>}
        </p>
      )}
      <dl className="grid grid-cols-[7.5rem_1fr] gap-y-1.5 text-xs">
        <Fact name={t("step.run")}>
          {detail.run}
          {detail.run === "worker" && ` · ${detail.queue}`}
        </Fact>
        {detail.pic && (
          <Fact name={t("step.pic")}>
            <Person who={detail.pic} />
          </Fact>
        )}
        {detail.attempts > 0 && (
          <Fact name={t("step.attempts")}>
            {t("drawer.attempt", { at: detail.attempts, of: detail.max_attempts })}
          </Fact>
        )}
        {took && <Fact name={t("drawer.took")}>{took}</Fact>}
        {detail.deadline && (
          <Fact name={t("step.deadline")}>
            <Moment at={detail.deadline} />
            {detail.overdue_first_at && (
              <span className="text-bad">
                {" "}
                {t("drawer.late", { time: detail.sla_breach_duration ?? "" })}
              </span>
            )}
          </Fact>
        )}
        {detail.next_run_at && detail.attempts > 0 && (
          <Fact name={t("step.next")}>
            <Moment at={detail.next_run_at} />
          </Fact>
        )}
        {detail.waiting_event_type && <Fact name={t("drawer.event")}>{detail.waiting_event_type}</Fact>}
        {detail.locked_by && <Fact name={t("step.worker")}>{detail.locked_by}</Fact>}
        {step.when && (
          <Fact name={t("drawer.when")}>
            <code className="font-mono">{condition(step.when)}</code>
          </Fact>
        )}
        {detail.depends_on.length > 0 && <Fact name={t("drawer.after")}>{detail.depends_on.join(", ")}</Fact>}
        {step.workflow && <Fact name={t("step.child")}>{step.workflow}</Fact>}
        {detail.child_run_id && (
          <Fact name="">
            <Link to="/runs/$id" params={{ id: detail.child_run_id }} className="text-accent underline">
              {t("step.openChild")}
            </Link>
          </Fact>
        )}
      </dl>
    </div>
  );
}

function Attempts({ detail }: { detail: SchemaStepDetail }) {
  const { t } = useTranslation();
  if (detail.attempt_log.length === 0) return null;
  return (
    <Part title={t("step.failed")}>
      <ol className="flex flex-col gap-2">
        {detail.attempt_log.map((attempt) => (
          <li key={attempt.event_id} className="grid grid-cols-[1.5rem_1fr] gap-x-1">
            <span className="tabular text-soft">{attempt.attempts ?? "–"}.</span>
            <div>
              <p className="[overflow-wrap:anywhere]">
                {attempt.purged ? t("drawer.purged") : (attempt.error ?? plain(attempt.error_category ?? ""))}
              </p>
              <p className="text-xs text-soft">
                <Person who={attempt.actor_ref} />, <Moment at={attempt.at} />
              </p>
            </div>
          </li>
        ))}
      </ol>
    </Part>
  );
}

/** Checks and pins of a runbook's step, and the files that it left. */
function Judged({ detail }: { detail: SchemaStepDetail }) {
  const { t } = useTranslation();
  return (
    <>
      {detail.checks && detail.checks.length > 0 && (
        <Part title={t("step.checks")}>
          <Checks checks={detail.checks} />
        </Part>
      )}
      {detail.pins.length > 0 && (
        <Part title={t("step.pins")}>
          <dl className="grid grid-cols-[7.5rem_1fr] gap-y-1.5">
            {detail.pins.map((pin) => (
              <Fact key={pin.pin} name={pin.pin}>
                <Id value={pin.digest} length={12} />
              </Fact>
            ))}
          </dl>
        </Part>
      )}
      {detail.artifacts && detail.artifacts.length > 0 && (
        <Part title={t("drawer.files")}>
          <ul className="flex flex-col gap-1">
            {detail.artifacts.map((file) => (
              <li key={file.path} className="flex items-center justify-between gap-3">
                {file.path} <Id value={file.sha256} length={12} />
              </li>
            ))}
          </ul>
        </Part>
      )}
      {detail.corrections && detail.corrections.length > 0 && (
        <Part title={t("drawer.corrections")}>
          <ul className="flex flex-col gap-1">
            {detail.corrections.map((one) => (
              <li key={one.event_id}>
                {plain(one.correction_reason)}{" "}
                <span className="text-xs text-soft">
                  <Person who={one.reopened_by} />, <Moment at={one.reopened_at} />
                </span>
              </li>
            ))}
          </ul>
        </Part>
      )}
    </>
  );
}

export function Checks({ checks }: { checks: { name: string; held: boolean }[] }) {
  const { t } = useTranslation();
  return (
    <ul className="flex flex-wrap gap-x-4 gap-y-1">
      {checks.map((check) => (
        <li key={check.name} className="inline-flex items-center gap-1.5">
          {check.held ? (
            <Check size={15} strokeWidth={2.5} className="text-ok" aria-hidden />
          ) : (
            <X size={15} strokeWidth={2.5} className="text-bad" aria-hidden />
          )}
          {plain(check.name)}
          <span className={check.held ? "sr-only" : "text-xs text-bad"}>
            {check.held ? t("step.held") : t("step.notHeld")}
          </span>
        </li>
      ))}
    </ul>
  );
}

function Approvals({ detail }: { detail: SchemaStepDetail }) {
  const { t } = useTranslation();
  if (detail.gates.length === 0) return null;
  return (
    <Part title={t("step.gates")}>
      <ul className="flex flex-col gap-1.5">
        {detail.gates.map((gate) => (
          <li key={gate.step_id} className="flex flex-wrap items-baseline gap-x-2">
            <Link to="/gate/$step" params={{ step: gate.step_id }} className="text-accent underline">
              {plain(gate.action)}
            </Link>
            <span>
              <Decider gate={gate} />
            </span>
            <span className="text-xs text-soft">
              {wordsFor(t, "gate.state", gate.state)}
              {gate.decided_at && (
                <>
                  , <Moment at={gate.decided_at} />
                </>
              )}
            </span>
            {gate.decision_reason && <q className="w-full font-serif">{gate.decision_reason}</q>}
          </li>
        ))}
      </ul>
    </Part>
  );
}

function Tasks({ detail }: { detail: SchemaStepDetail }) {
  const { t } = useTranslation();
  const says = useTexts();
  if (detail.tasks.length === 0) return null;
  return (
    <Part title={t("step.tasks")}>
      <ul className="flex flex-col">
        {detail.tasks.map((task) => (
          <li
            key={task.name}
            className="flex min-h-9 items-center justify-between gap-3 border-b border-line last:border-0"
          >
            <span className="min-w-0 truncate">
              {task.name.split("/").at(-1)}
              {task.pic && (
                <span className="ml-2 text-xs text-soft">
                  <Person who={task.pic} />
                </span>
              )}
            </span>
            <StateMark
              token={task.appearance.color_token}
              icon={task.appearance.icon}
              words={says(`state.${task.derived_state ?? task.state_code}.label`)}
            />
          </li>
        ))}
      </ul>
    </Part>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt className="text-soft">{name}</dt>
      <dd className="[overflow-wrap:anywhere]">{children}</dd>
    </>
  );
}

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="border-t border-line pt-4">
      <h3 className="mb-2">{title}</h3>
      {children}
    </section>
  );
}

function Folded({ title, children }: { title: string; children: ReactNode }) {
  return (
    <details className="border-t border-line pt-4">
      <summary className="cursor-pointer font-semibold">{title}</summary>
      <div className="mt-3">{children}</div>
    </details>
  );
}
