// What was said about a proposal. Each comment is a record.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaProposalView } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { Failure } from "@/ui/feedback";
import { Person } from "@/ui/person";
import { Moment } from "@/ui/text";

export function Comments({ proposal, ended }: { proposal: SchemaProposalView; ended: boolean }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [text, setText] = useState("");
  const { proposal_id: id, comments } = proposal;
  const say = useMutation({
    mutationFn: () =>
      body(
        api.POST("/v1/proposals/{id}/comments", { params: { path: { id } }, body: { text: text.trim() } }),
      ),
    onSuccess: () => {
      setText("");
      return client.invalidateQueries({ queryKey: ["proposals", id] });
    },
  });
  if (ended && comments.length === 0) return null;
  return (
    <section className="mt-8 max-w-3xl">
      <h2 className="mb-3">{t("proposal.comments")}</h2>
      {comments.length === 0 && <p className="mb-3 text-soft">{t("proposal.noComments")}</p>}
      <ol aria-label={t("proposal.comments")} className="flex flex-col">
        {comments.map((comment) => (
          <li key={comment.event_id} className="border-t border-line py-3">
            <p className="text-xs text-soft">
              <Person who={comment.by} />, <Moment at={comment.at} />
            </p>
            <p className="mt-1 whitespace-pre-wrap [overflow-wrap:anywhere]">{comment.text}</p>
          </li>
        ))}
      </ol>
      {!ended && (
        <form
          onSubmit={(event: FormEvent) => {
            event.preventDefault();
            say.mutate();
          }}
          className="mt-3 flex flex-col items-start gap-2"
        >
          <label htmlFor="comment" className="font-medium">
            {t("proposal.comment")}
          </label>
          <textarea
            id="comment"
            rows={3}
            required
            value={text}
            onChange={(event) => setText(event.target.value)}
            className="field w-full py-2"
          />
          {say.isError && <Failure error={say.error} />}
          <Button type="submit" disabled={say.isPending}>
            {say.isPending ? t("dialog.recording") : t("proposal.say")}
          </Button>
        </form>
      )}
    </section>
  );
}
