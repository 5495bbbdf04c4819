// One dead letter: what it holds, why it failed, and every attempt.
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { api, body } from "@/api/client";
import type { SchemaDeadLetterView, SchemaFailedAttempt } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import { Fact, Facts } from "@/ui/facts";
import { Failure, Skeleton } from "@/ui/feedback";
import { PageHead } from "@/ui/page";
import { Person } from "@/ui/person";
import { Id, Moment } from "@/ui/text";
import { plain } from "@/ui/texts";
import { Values } from "@/ui/values";
import { useLight } from "./category";
import { Kind } from "./letters";
import { Event } from "./problem";
import { Replays } from "./replays";
import { RunLink } from "./subject";
import { Governed, Standing, Timeline } from "./words";

export function DeadLetter() {
  const { t } = useTranslation();
  return (
    <Governed title={wordsFor(t, "governance.category", "dlq")}>
      <Letter />
    </Governed>
  );
}

function Letter() {
  const { t } = useTranslation();
  const { id } = useParams({ from: "/frame/governance/dead-letters/$id" });
  const light = useLight("dlq");
  const query = useQuery({
    queryKey: ["governance", "dead-letter", id],
    queryFn: () =>
      body(api.GET("/v1/dead-letters/{dead_letter_id}", { params: { path: { dead_letter_id: id } } })),
  });
  if (query.isPending) return <Skeleton lines={8} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const letter = query.data;
  return (
    <>
      <PageHead
        trail={
          <>
            <Link to="/governance" className="hover:underline">
              {t("page.governance")}
            </Link>{" "}
            /{" "}
            <Link to="/governance/dead-letters" className="hover:underline">
              {wordsFor(t, "governance.category", "dlq")}
            </Link>
          </>
        }
        title={letter.step ?? letter.webhook ?? letter.detail}
      >
        <p className="flex flex-wrap items-center gap-x-5 gap-y-1">
          <Standing state={letter.state} light={light} />
          <Kind of={letter} />
          <span className="text-soft">
            {letter.detail}, <Moment at={letter.since} />
          </span>
          <Timeline href={letter.timeline} />
        </p>
      </PageHead>
      <div className="grid gap-x-12 gap-y-8 lg:grid-cols-2">
        <section className="min-w-0">
          <h2 className="mb-3">{t("governance.why")}</h2>
          <About letter={letter} />
        </section>
        <section className="min-w-0">
          <h2 className="mb-3">{t("governance.payload")}</h2>
          {letter.payload == null ? (
            <p className="text-soft">{t("governance.noPayload")}</p>
          ) : (
            <div className="text-sm">
              <Values value={letter.payload} />
            </div>
          )}
        </section>
      </div>
      <Replays letter={letter} />
      <Attempts letter={letter} />
    </>
  );
}

function About({ letter }: { letter: SchemaDeadLetterView }) {
  const { t } = useTranslation();
  return (
    <Facts>
      {letter.failure_class && <Fact name={t("governance.failureClass")}>{plain(letter.failure_class)}</Fact>}
      {letter.last_error && <Fact name={t("governance.lastError")}>{letter.last_error}</Fact>}
      <Fact name={t("step.attempts")}>
        <span className="tabular">{letter.attempts}</span>
      </Fact>
      {letter.run_id && (
        <Fact name={t("governance.run")}>
          <RunLink run={letter.run_id} step={letter.step} />
        </Fact>
      )}
      {letter.step && <Fact name={t("work.step")}>{letter.step}</Fact>}
      {letter.webhook && <Fact name={t("governance.webhook")}>{letter.webhook}</Fact>}
      {letter.outbox_id && (
        <Fact name={t("governance.event")}>
          <Id value={letter.outbox_id} />
        </Fact>
      )}
    </Facts>
  );
}

function Attempts({ letter }: { letter: SchemaDeadLetterView }) {
  const { t } = useTranslation();
  const log = letter.attempt_log ?? [];
  return (
    <section className="mt-8">
      <h2 className="mb-3">{t("governance.attempts")}</h2>
      {log.length === 0 && (
        <p className="text-soft">{t("governance.noAttempts", { count: letter.attempts })}</p>
      )}
      <ol className="flex flex-col">
        {log.map((attempt) => (
          <Attempt key={attempt.event_id} attempt={attempt} />
        ))}
      </ol>
    </section>
  );
}

function Attempt({ attempt }: { attempt: SchemaFailedAttempt }) {
  const { t } = useTranslation();
  return (
    <li className="grid gap-x-6 gap-y-1 border-t border-line py-3 sm:grid-cols-[7rem_1fr_auto]">
      <span className="font-medium">
        {attempt.attempts != null ? t("governance.attempt", { number: attempt.attempts }) : "—"}
      </span>
      <span className="min-w-0 [overflow-wrap:anywhere]">
        {attempt.purged ? (
          <span className="text-soft">{t("drawer.purged")}</span>
        ) : (
          <>
            {attempt.error ?? "—"}
            {attempt.error_category && <span className="text-soft"> ({plain(attempt.error_category)})</span>}
          </>
        )}
        {attempt.effect_unknown && (
          <span className="block text-xs text-warn">{t("drawer.effectUnknown")}</span>
        )}
      </span>
      <span className="text-xs text-soft">
        {attempt.actor_ref && (
          <>
            <Person who={attempt.actor_ref} />,{" "}
          </>
        )}
        <Moment at={attempt.at} /> <Event id={attempt.event_id} />
      </span>
    </li>
  );
}
