// Why is this step as it is? State, error, attempts, checks and pins, gate, tasks, data, and what can be done.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Check, X } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { Step } from "@/graph/model";
import { Button } from "@/ui/button";
import { Failure, Skeleton } from "@/ui/feedback";
import { StateChip } from "@/ui/state";
import { Id, Moment } from "@/ui/text";
import { Values } from "@/ui/values";
import { Actions } from "./actions";
import { Timeline } from "./timeline";

export function StepDrawer({
  runId,
  step,
  sequence,
  onClose,
}: {
  runId: string;
  step: Step;
  sequence: number;
  onClose: () => void;
}) {
  const { t } = useTranslation();
  const query = useQuery({
    queryKey: ["runs", runId, "steps", step.name, sequence],
    queryFn: () =>
      body(
        api.GET("/v1/runs/{run_id}/steps/{step}", { params: { path: { run_id: runId, step: step.name } } }),
      ),
    placeholderData: (before) => before,
  });
  const detail = query.data;
  return (
    <aside
      aria-label={step.name}
      className="fixed inset-0 z-30 overflow-y-auto border-line bg-page px-5 py-4 lg:static lg:inset-auto lg:z-0 lg:w-96 lg:shrink-0 lg:rounded-lg lg:border"
    >
      <div className="flex items-start justify-between gap-3">
        <h2 className="[overflow-wrap:anywhere]">{step.name}</h2>
        <Button look="quiet" aria-label={t("common.close")} onClick={onClose}>
          <X aria-hidden size={18} />
        </Button>
      </div>
      {query.isError && <Failure error={query.error} retry={() => void query.refetch()} />}
      {!detail && query.isPending && <Skeleton lines={6} />}
      {detail && (
        <div className="flex flex-col gap-5 pb-6">
          <div className="flex flex-col gap-2">
            <span>
              <StateChip token={detail.appearance.color_token} words={detail.appearance.label} />
            </span>
            {detail.last_error && (
              <p className="rounded-md bg-bad-wash px-3 py-2 text-sm [overflow-wrap:anywhere]">
                {detail.last_error}
              </p>
            )}
            {detail.block_reason && <p>{detail.block_reason}</p>}
            <dl className="grid grid-cols-[7rem_1fr] gap-y-1 text-xs">
              <Fact name={t("step.run")}>{detail.run}</Fact>
              {detail.pic && <Fact name={t("step.pic")}>{detail.pic}</Fact>}
              <Fact name={t("step.attempts")}>
                {detail.attempts} / {detail.max_attempts}
              </Fact>
              {detail.deadline && (
                <Fact name={t("step.deadline")}>
                  <Moment at={detail.deadline} />
                </Fact>
              )}
              {detail.next_run_at && (
                <Fact name={t("step.next")}>
                  <Moment at={detail.next_run_at} />
                </Fact>
              )}
              {detail.locked_by && <Fact name={t("step.worker")}>{detail.locked_by}</Fact>}
              {detail.child_run_id && (
                <Fact name={t("step.child")}>
                  <Link to="/runs/$id" params={{ id: detail.child_run_id }} className="text-accent underline">
                    {t("step.openChild")}
                  </Link>
                </Fact>
              )}
            </dl>
          </div>
          <Actions runId={runId} step={step.name} />
          {detail.attempt_log.length > 0 && (
            <Part title={t("step.failed")}>
              <ol className="flex flex-col gap-2 text-sm">
                {detail.attempt_log.map((attempt) => (
                  <li key={attempt.event_id}>
                    <span className="text-xs text-soft">
                      {attempt.attempts}. {attempt.actor_ref} · <Moment at={attempt.at} />
                    </span>
                    <p className="[overflow-wrap:anywhere]">{attempt.error ?? attempt.error_category}</p>
                  </li>
                ))}
              </ol>
            </Part>
          )}
          {detail.checks && detail.checks.length > 0 && (
            <Part title={t("step.checks")}>
              <ul className="flex flex-col gap-1 text-sm">
                {detail.checks.map((check) => (
                  <li key={check.name} className="flex items-center gap-2">
                    {check.held ? (
                      <Check size={15} className="text-ok" aria-hidden />
                    ) : (
                      <X size={15} className="text-bad" aria-hidden />
                    )}
                    {check.name}
                    <span className="text-xs text-soft">
                      {check.held ? t("step.held") : t("step.notHeld")}
                    </span>
                  </li>
                ))}
              </ul>
            </Part>
          )}
          {detail.pins.length > 0 && (
            <Part title={t("step.pins")}>
              <ul className="text-sm">
                {detail.pins.map((pin) => (
                  <li key={pin.pin} className="flex items-center gap-2">
                    {pin.pin} <Id value={pin.digest} length={12} />
                  </li>
                ))}
              </ul>
            </Part>
          )}
          {detail.gates.length > 0 && (
            <Part title={t("step.gates")}>
              <ul className="flex flex-col gap-1 text-sm">
                {detail.gates.map((gate) => (
                  <li key={gate.step_id}>
                    <Link to="/gate/$step" params={{ step: gate.step_id }} className="text-accent underline">
                      {gate.action}
                    </Link>{" "}
                    {gate.state} · {gate.approver_ref}
                  </li>
                ))}
              </ul>
            </Part>
          )}
          {detail.tasks.length > 0 && (
            <Part title={t("step.tasks")}>
              <ul className="flex flex-col gap-1 text-sm">
                {detail.tasks.map((task) => (
                  <li key={task.name} className="flex items-center justify-between gap-2">
                    {task.name.split("/").at(-1)}
                    <StateChip token={task.appearance.color_token} words={task.appearance.label} />
                  </li>
                ))}
              </ul>
            </Part>
          )}
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
          <Folded title={t("run.timeline")}>
            <Timeline runId={runId} step={step.name} sequence={sequence} />
          </Folded>
        </div>
      )}
    </aside>
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
    <section>
      <h3 className="mb-1.5">{title}</h3>
      {children}
    </section>
  );
}

function Folded({ title, children }: { title: string; children: ReactNode }) {
  return (
    <details>
      <summary className="cursor-pointer font-semibold">{title}</summary>
      <div className="mt-2 text-sm">{children}</div>
    </details>
  );
}
