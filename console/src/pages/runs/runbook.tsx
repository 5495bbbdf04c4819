// A runbook: may it go on? The chain as a checklist; on a stop, what differs, who decides, and the way to decide.
import { Link } from "@tanstack/react-router";
import { Pin, Stamp } from "lucide-react";
import type { ReactNode } from "react";
import type { SchemaGate, SchemaGraph, SchemaRunView } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import { Person } from "@/ui/person";
import { Progress } from "@/ui/progress";
import { useToken } from "@/ui/state";
import { Id, Moment, useNow } from "@/ui/text";
import { plain, useTexts } from "@/ui/texts";
import { duration } from "@/ui/time";
import { isOpen } from "../gate/decide";
import { Decider } from "../gate/deciders";
import { useOffered, waitingFor } from "./actions";
import { Checks } from "./step-drawer";

type Step = SchemaRunView["steps"][number];

export function Runbook({
  run,
  sequence,
  graph,
  onSelect,
}: {
  run: SchemaRunView;
  sequence: number;
  graph: SchemaGraph | undefined;
  onSelect: (step: string) => void;
}) {
  const { t } = useTranslation();
  const used = run.executing_ms ?? 0;
  return (
    <section aria-label={t("runbook.title")} className="flex flex-col gap-6">
      {run.state === "stopped" && <Stopped run={run} sequence={sequence} />}
      <div className="flex flex-wrap items-center gap-x-8 gap-y-2">
        {run.phase && (
          <p>
            <span className="text-soft">{t("runbook.phase")}</span>{" "}
            <strong className="font-medium">{plain(run.phase)}</strong>
          </p>
        )}
        {run.hard_cap_ms != null && (
          <p className="flex items-center gap-2.5 text-xs text-soft">
            <Progress label={t("runbook.hardCap")} value={used} of={run.hard_cap_ms} className="w-40" />
            {t("runbook.cap", {
              left: duration(Math.max(0, run.hard_cap_ms - used)),
              all: duration(run.hard_cap_ms),
            })}
          </p>
        )}
        {run.surveying && (
          <p role="status" className="text-xs text-soft">
            {t("runbook.surveying", { step: run.surveying })}
          </p>
        )}
        {run.dry_run && <p className="text-xs text-soft">{t("runbook.dryRun")}</p>}
      </div>
      <ol aria-label={t("runbook.chain")} className="border-t border-line">
        {run.steps
          .filter((step) => step.role === "step")
          .map((step) => (
            <ChainLink
              key={step.name}
              step={step}
              run={run}
              approvers={graph?.nodes?.find((node) => node.name === step.name)?.approvers}
              onSelect={onSelect}
            />
          ))}
      </ol>
    </section>
  );
}

/** One link of the chain: what was checked, what was pinned, who approved, how long it may take. */
function ChainLink({
  step,
  run,
  approvers,
  onSelect,
}: {
  step: Step;
  run: SchemaRunView;
  approvers: string[] | undefined;
  onSelect: (step: string) => void;
}) {
  const { t } = useTranslation();
  const says = useTexts();
  const now = useNow();
  const { colours, Shape } = useToken(step.appearance.color_token, step.appearance.icon);
  const pins = (run.pins ?? []).filter((pin) => pin.step === step.name);
  const gates = run.gates.filter((gate) => gate.action === step.name);
  const [from, cap] = [step.started_at, step.soft_cap_at].map((at) => (at ? Date.parse(at) : undefined));
  return (
    <li className="grid grid-cols-[1.5rem_1fr] gap-x-3 border-b border-line py-4">
      <Shape aria-hidden size={18} strokeWidth={2.5} className="mt-0.5" style={{ color: colours.line }} />
      <div className="flex min-w-0 flex-col gap-2">
        <div className="flex flex-wrap items-baseline gap-x-3">
          <button
            type="button"
            onClick={() => onSelect(step.name)}
            className="text-base font-medium hover:underline"
          >
            {step.name}
          </button>
          <span className="text-soft">{says(`state.${step.derived_state ?? step.state_code}.label`)}</span>
          {from !== undefined && (
            <span className="tabular ml-auto text-xs text-soft">
              {step.completed_at ? (
                duration(Date.parse(step.completed_at) - from)
              ) : (
                <Moment at={step.started_at ?? ""} />
              )}
            </span>
          )}
        </div>
        {step.checks && step.checks.length > 0 && <Checks checks={step.checks} />}
        {cap !== undefined && from !== undefined && !step.completed_at && (
          <p className="flex items-center gap-2.5 text-xs text-soft">
            <Progress label={t("runbook.softCap")} value={now - from} of={cap - from} />
            {t("runbook.cap", { left: duration(Math.max(0, cap - now)), all: duration(cap - from) })}
          </p>
        )}
        {pins.map((pin) => (
          <Line key={pin.pin} icon={<Pin aria-hidden size={14} className="text-soft" />}>
            <span className="text-soft">{t("runbook.pinned1", { pin: pin.pin })}</span>
            <Id value={pin.digest} length={12} />
          </Line>
        ))}
        {gates.length > 0
          ? gates.map((gate) => (
              <Line key={gate.step_id} icon={<Stamp aria-hidden size={14} className="text-accent" />}>
                <Decided gate={gate} />
              </Line>
            ))
          : approvers &&
            approvers.length > 0 && (
              <Line icon={<Stamp aria-hidden size={14} className="text-accent" />}>
                <span className="text-soft">{t("runbook.willDecide")}</span>
                {approvers.map((who) => (
                  <Person key={who} who={who} />
                ))}
              </Line>
            )}
        {step.last_error && (
          <p className="border-l-[3px] border-bad bg-bad-wash px-3 py-1.5 [overflow-wrap:anywhere]">
            {step.last_error}
          </p>
        )}
      </div>
    </li>
  );
}

function Line({ icon, children }: { icon: ReactNode; children: ReactNode }) {
  return (
    <p className="flex flex-wrap items-center gap-x-2 text-sm">
      {icon}
      {children}
    </p>
  );
}

function Decided({ gate }: { gate: SchemaGate }) {
  const { t } = useTranslation();
  return (
    <>
      <Link to="/gate/$step" params={{ step: gate.step_id }} className="text-accent underline">
        <Decider gate={gate} />
      </Link>
      <span className="text-soft">
        {wordsFor(t, "gate.state", gate.state)}
        {gate.decided_at && (
          <>
            , <Moment at={gate.decided_at} />
          </>
        )}
      </span>
    </>
  );
}

/** What stopped it, what differs, and who decides. */
function Stopped({ run, sequence }: { run: SchemaRunView; sequence: number }) {
  const { t } = useTranslation();
  const offered = useOffered(run.run_id, undefined, sequence).data ?? [];
  const resume = run.gates.filter((gate) => gate.action === "resume");
  const waiting = resume.find(isOpen);
  const approved = resume.filter((gate) => gate.state === "Approved").at(-1);
  const yours = waiting !== undefined && waitingFor(offered, [waiting]) !== undefined;
  const outcome = run.outcome ?? "";
  return (
    <section
      aria-label={t("runbook.stopped")}
      className="flex flex-col gap-4 rounded-lg border border-warn bg-warn-wash px-5 py-4"
    >
      <div>
        <h2>{wordsFor(t, "runbook.outcome", outcome)}</h2>
        {waiting ? (
          <p className="mt-1">
            <Person who={waiting.approver_ref} /> {t("runbook.decides")}
          </p>
        ) : approved ? (
          <p className="mt-1">
            <Decider gate={approved} /> {t("runbook.approved")}
          </p>
        ) : (
          <p className="mt-1">{t("runbook.askFirst")}</p>
        )}
      </div>
      {run.drift && run.drift.length > 0 && <Drift drift={run.drift} errors={run.pin_errors} />}
      {(run.pin_errors ?? []).map((one) => (
        <p key={one.pin} className="text-sm">
          {one.pin}: {one.error}
        </p>
      ))}
      {waiting && (
        <Link
          to="/gate/$step"
          params={{ step: waiting.step_id }}
          className={`inline-flex min-h-9 items-center self-start rounded-md border px-3.5 font-medium ${yours ? "border-accent bg-accent text-on-accent" : "border-field-line bg-raised"}`}
        >
          {t(yours ? "runbook.decideNow" : "runbook.open")}
        </Link>
      )}
    </section>
  );
}

/** Side by side: what was pinned, and what is there now. */
function Drift({
  drift,
  errors = [],
}: {
  drift: NonNullable<SchemaRunView["drift"]>;
  errors?: SchemaRunView["pin_errors"];
}) {
  const { t } = useTranslation();
  return (
    <div className="overflow-x-auto">
      <table className="w-full border-collapse text-sm">
        <caption className="mb-2 text-left font-medium">{t("runbook.drift")}</caption>
        <thead className="text-left">
          <tr>
            <th scope="col" className="kicker pr-4 pb-1">
              {t("runbook.pin")}
            </th>
            <th scope="col" className="kicker w-1/2 pb-1">
              {t("runbook.pinned")}
            </th>
            <th scope="col" className="kicker w-1/2 pb-1 pl-3">
              {t("runbook.live")}
            </th>
          </tr>
        </thead>
        <tbody>
          {drift.map((one) => (
            <tr key={one.pin} className="border-t border-field-line align-top">
              <th scope="row" className="py-2 pr-4 text-left font-medium">
                {one.pin}
              </th>
              <td className="bg-page px-3 py-2 font-mono text-xs [overflow-wrap:anywhere]">
                <Differs value={text(one.pinned)} other={text(one.live)} look="bg-ok-wash text-ok" />
              </td>
              <td className="border-l-4 border-warn-wash bg-page px-3 py-2 font-mono text-xs [overflow-wrap:anywhere]">
                {errors.find((failed) => failed.pin === one.pin)?.error ?? (
                  <Differs value={text(one.live)} other={text(one.pinned)} look="bg-bad-wash text-bad" />
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A value with the part that differs marked: everything between the common beginning and the common end. */
function Differs({ value, other, look }: { value: string; other: string; look: string }) {
  let begin = 0;
  while (begin < value.length && value[begin] === other[begin]) begin += 1;
  let end = 0;
  while (
    end < value.length - begin &&
    end < other.length - begin &&
    value.at(-1 - end) === other.at(-1 - end)
  )
    end += 1;
  return (
    <>
      {value.slice(0, begin)}
      <mark className={`rounded-sm ${look}`}>{value.slice(begin, value.length - end)}</mark>
      {value.slice(value.length - end)}
    </>
  );
}

const text = (value: unknown) =>
  value === null || value === undefined ? "—" : typeof value === "string" ? value : JSON.stringify(value);
