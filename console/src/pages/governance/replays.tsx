// Requests to replay a dead letter: who asked, what was decided, what came of it, and the button that asks.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaDeadLetterView } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import { useMe } from "@/app/session";
import { Button } from "@/ui/button";
import { ReasonDialog } from "@/ui/dialog";
import { Person } from "@/ui/person";
import { Moment } from "@/ui/text";
import { Event } from "./problem";

export function Replays({ letter }: { letter: SchemaDeadLetterView }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const { data: me } = useMe();
  const [asking, setAsking] = useState(false);
  const ask = useMutation({
    mutationFn: (reason: string) =>
      body(
        api.POST("/v1/dead-letters/{dead_letter_id}/replay-requests", {
          params: { path: { dead_letter_id: letter.dead_letter_id } },
          body: { reason },
        }),
      ),
    onSuccess: () => {
      setAsking(false);
      void client.invalidateQueries({ queryKey: ["governance"] });
    },
  });
  const requests = letter.replay_requests ?? [];
  return (
    <section className="mt-8">
      <h2 className="mb-3">{t("governance.replays")}</h2>
      {requests.length === 0 && <p className="text-soft">{t("governance.noReplays")}</p>}
      <ol className="flex flex-col">
        {requests.map((request) => (
          <li
            key={request.dlq_replay_request_id}
            className="flex flex-wrap items-center gap-x-5 gap-y-1 border-t border-line py-3"
          >
            <Link
              to="/processes/$id"
              params={{ id: request.dlq_replay_request_id }}
              className="font-medium hover:underline"
            >
              {wordsFor(t, "governance.replay", request.outcome ?? request.state)}
            </Link>
            <span className="text-soft">
              {t("governance.askedBy")} <Person who={request.requested_by} />,{" "}
              <Moment at={request.requested_at} />
            </span>
            {request.outcome_event_id && <Event id={request.outcome_event_id} />}
          </li>
        ))}
      </ol>
      {letter.state === "open" && me?.scopes.includes("governance:act") && (
        <Button
          className="mt-3"
          onClick={() => {
            ask.reset();
            setAsking(true);
          }}
        >
          {t("governance.askReplay")}
        </Button>
      )}
      {asking && (
        <ReasonDialog
          title={t("governance.askReplay")}
          lead={t("governance.askReplayWhy")}
          needsReason
          confirm={t("governance.askReplay")}
          pending={ask.isPending}
          error={ask.error}
          onConfirm={(reason) => ask.mutate(reason ?? "")}
          onClose={() => setAsking(false)}
        />
      )}
    </section>
  );
}
