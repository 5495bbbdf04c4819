// What starts by the clock, when next, and whether it is paused.
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CalendarClock, Pause } from "lucide-react";
import { useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaMe, SchemaScheduleView } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import { Button } from "@/ui/button";
import { ReasonDialog } from "@/ui/dialog";
import { Failure } from "@/ui/feedback";
import { Person } from "@/ui/person";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";

/** Whether they hold the scope, for all definitions or for this one. */
const holds = (me: SchemaMe, scope: string, definition: string) =>
  me.scopes.some((one) => one === scope || one === `${scope}:${definition}`);

export function Schedules({ me }: { me: SchemaMe }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [asked, setAsked] = useState<SchemaScheduleView>();
  const query = useInfiniteQuery({
    queryKey: ["schedules"],
    queryFn: () => body(api.GET("/v1/schedules", {})),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const control = useMutation({
    mutationFn: ({ schedule, reason }: { schedule: SchemaScheduleView; reason?: string }) => {
      const given = { params: { path: { definition: schedule.definition } }, body: { reason } };
      return body(
        schedule.paused
          ? api.POST("/v1/schedules/{definition}/resume", given)
          : api.POST("/v1/schedules/{definition}/pause", given),
      );
    },
    onSuccess: () => {
      setAsked(undefined);
      void client.invalidateQueries({ queryKey: ["schedules"] });
    },
  });
  const trigger = useMutation({
    mutationFn: ({ definition, index }: SchemaScheduleView) =>
      body(
        api.POST("/v1/schedules/{definition}/trigger", {
          params: { path: { definition } },
          body: { index },
        }),
      ),
  });
  const ask = (schedule: SchemaScheduleView) => {
    control.reset();
    setAsked(schedule);
  };
  return (
    <>
      {trigger.isError && <Failure error={trigger.error} />}
      {trigger.data && (
        <p role="status" className="mb-4">
          {t("admin.scheduleStarted")}{" "}
          <Link to="/runs/$id" params={{ id: trigger.data.run_id }} className="text-accent underline">
            {t("admin.scheduleOpenRun")}
          </Link>
        </p>
      )}
      <PagedTable
        label={t("admin.schedules")}
        query={query}
        id={(row) => `${row.definition} ${row.index}`}
        columns={[
          {
            key: "definition",
            title: t("admin.definition"),
            wide: true,
            cell: (row) => (
              <Link
                to="/definitions/$name"
                params={{ name: row.definition }}
                className="font-medium hover:underline"
              >
                {row.definition}
              </Link>
            ),
          },
          {
            key: "cron",
            title: t("admin.cron"),
            cell: (row) => <code className="font-mono text-xs whitespace-nowrap">{row.cron}</code>,
          },
          { key: "zone", title: t("admin.zone"), from: "md", cell: (row) => row.time_zone },
          {
            key: "overlap",
            title: t("admin.overlap"),
            from: "lg",
            cell: (row) => wordsFor(t, "admin.overlaps", row.overlap),
          },
          { key: "state", title: t("admin.scheduleState"), cell: (row) => <State schedule={row} /> },
          {
            key: "next",
            title: t("admin.next"),
            from: "sm",
            cell: (row) => (row.next_at ? <Moment at={row.next_at} /> : row.paused ? "–" : t("admin.never")),
          },
          {
            key: "acts",
            title: t("actions.title"),
            right: true,
            cell: (row) => (
              <span className="flex flex-wrap justify-end gap-2">
                {holds(me, "runs:control", row.definition) && (
                  <Button
                    small
                    aria-label={t(row.paused ? "admin.scheduleResumeOf" : "admin.schedulePauseOf", {
                      definition: row.definition,
                    })}
                    onClick={() => ask(row)}
                  >
                    {t(row.paused ? "admin.scheduleResume" : "admin.schedulePause")}
                  </Button>
                )}
                {holds(me, "runs:start", row.definition) && (
                  <Button small disabled={trigger.isPending} onClick={() => trigger.mutate(row)}>
                    {t("admin.scheduleTrigger")}
                  </Button>
                )}
              </span>
            ),
          },
        ]}
        empty={{ title: t("admin.noSchedules"), why: t("admin.noSchedulesWhy") }}
      />
      {asked && (
        <ReasonDialog
          title={t(asked.paused ? "admin.scheduleResumeOf" : "admin.schedulePauseOf", {
            definition: asked.definition,
          })}
          lead={t(asked.paused ? "admin.scheduleResumeWhy" : "admin.schedulePauseWhy")}
          needsReason={!asked.paused}
          confirm={t(asked.paused ? "admin.scheduleResume" : "admin.schedulePause")}
          pending={control.isPending}
          error={control.error}
          onClose={() => setAsked(undefined)}
          onConfirm={(reason) => control.mutate({ schedule: asked, reason })}
        />
      )}
    </>
  );
}

/** On, or paused: since when, by whom and why. */
function State({ schedule }: { schedule: SchemaScheduleView }) {
  const { t } = useTranslation();
  const { paused } = schedule;
  if (!paused)
    return (
      <span className="inline-flex items-center gap-2">
        <CalendarClock aria-hidden size={15} className="text-ok" />
        {t("admin.scheduleOn")}
      </span>
    );
  return (
    <span className="flex flex-col">
      <span className="inline-flex items-center gap-2">
        <Pause aria-hidden size={15} className="text-warn" />
        {t("admin.schedulePaused")}
        {paused.reason && <span className="font-serif">“{paused.reason}”</span>}
      </span>
      <span className="pl-[23px] text-xs text-soft">
        {t("admin.schedulePausedBy")} <Person who={paused.by} />, <Moment at={paused.at} />
      </span>
    </span>
  );
}
