// One actor: what they may do, what they sign with, and where they are signed in.
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ArrowLeft } from "lucide-react";
import { type ReactNode, useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaActorKey } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { ReasonDialog } from "@/ui/dialog";
import { Failure, Skeleton } from "@/ui/feedback";
import { Id, Moment } from "@/ui/text";
import { GrantForm, GrantTable } from "./grants";
import { Secret } from "./secret";
import { Sessions } from "./sessions";

export function Actor({ actor }: { actor: string }) {
  const { t } = useTranslation();
  const names = useQuery({
    queryKey: ["actors", "name", actor],
    queryFn: () => body(api.GET("/v1/actors/names", { params: { query: { refs: actor } } })),
  });
  const name = names.data?.items[0]?.display_name;
  const filter = { subject_ref: actor };
  const grants = useInfiniteQuery({
    queryKey: ["grants", filter],
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/grants", {
          params: { query: { ...filter, limit: 100, cursor: pageParam || undefined } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  return (
    <div className="flex max-w-4xl flex-col gap-8">
      <header>
        <Link
          to="/admin"
          search={{ tab: "actors" }}
          className="inline-flex items-center gap-1 text-sm text-accent underline"
        >
          <ArrowLeft aria-hidden size={15} />
          {t("admin.actors")}
        </Link>
        <h2 className="mt-3 text-xl">{name ?? actor}</h2>
        <code className="font-mono text-xs text-soft">{actor}</code>
      </header>
      <Part title={t("admin.grants")}>
        <GrantForm subject={actor} />
        <GrantTable query={grants} one />
      </Part>
      <Credentials actor={actor} />
      <Part title={t("admin.sessions")}>
        <Sessions actor={actor} />
      </Part>
    </div>
  );
}

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="flex flex-col items-start gap-3 border-t border-line pt-6">
      <h3>{title}</h3>
      {children}
    </section>
  );
}

function Credentials({ actor }: { actor: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [ending, setEnding] = useState<SchemaActorKey>();
  const path = { actor_ref: actor };
  const queryKey = ["actors", actor, "keys"];
  const query = useQuery({
    queryKey,
    queryFn: () => body(api.GET("/v1/actors/{actor_ref}/keys", { params: { path } })),
  });
  const again = () => void client.invalidateQueries({ queryKey });
  const endKey = useMutation({
    mutationFn: ({ key, reason }: { key: string; reason?: string }) =>
      body(
        api.POST("/v1/actors/{actor_ref}/keys/{key_id}/revoke", {
          params: { path: { ...path, key_id: key } },
          body: { reason },
        }),
      ),
    onSuccess: () => {
      setEnding(undefined);
      again();
    },
  });
  const endToken = useMutation({
    mutationFn: (credential_id: string) =>
      body(
        api.POST("/v1/actors/{actor_ref}/tokens/{credential_id}/revoke", {
          params: { path: { ...path, credential_id } },
          body: {},
        }),
      ),
    onSuccess: again,
  });
  const issue = useMutation({
    mutationFn: () => body(api.POST("/v1/actors/{actor_ref}/tokens", { params: { path }, body: {} })),
    onSuccess: again,
  });
  return (
    <>
      <Part title={t("admin.keys")}>
        {query.isPending && <Skeleton lines={2} />}
        {query.isError && <Failure error={query.error} />}
        {query.data?.keys.length === 0 && <p className="text-soft">{t("admin.noKeys")}</p>}
        <Rows>
          {query.data?.keys.map((key) => (
            <Row
              key={key.key_id}
              id={key.key_id}
              label={key.passkey ? (key.label ?? t("admin.passkey")) : undefined}
              active={key.status === "active"}
              by={key.added_by}
              at={key.added_at}
              onEnd={() => setEnding(key)}
              words={t("admin.endKey", { key: key.key_id })}
            />
          ))}
        </Rows>
      </Part>
      <Part title={t("admin.tokens")}>
        <Rows>
          {query.data?.tokens.map((token) => (
            <Row
              key={token.credential_id}
              id={token.credential_id}
              active={token.status === "active"}
              by={token.added_by}
              at={token.added_at}
              onEnd={() => endToken.mutate(token.credential_id)}
              words={t("admin.endToken", { token: token.credential_id })}
            />
          ))}
        </Rows>
        {(endToken.error ?? issue.error) && <Failure error={endToken.error ?? issue.error} />}
        <Button disabled={issue.isPending} onClick={() => issue.mutate()}>
          {t("admin.issue")}
        </Button>
        {issue.data?.token && <Secret of={actor} token={issue.data.token} />}
      </Part>
      {ending && (
        <ReasonDialog
          title={t("admin.endKey", { key: ending.key_id })}
          lead={t("admin.endKeyWhy")}
          needsReason={false}
          danger
          confirm={t("admin.revoke")}
          pending={endKey.isPending}
          error={endKey.error}
          onClose={() => setEnding(undefined)}
          onConfirm={(reason) => endKey.mutate({ key: ending.key_id, reason })}
        />
      )}
    </>
  );
}

const Rows = ({ children }: { children: ReactNode }) => (
  <ul className="w-full divide-y divide-line text-sm">{children}</ul>
);

function Row({
  id,
  label,
  active,
  by,
  at,
  onEnd,
  words,
}: {
  id: string;
  /** What its owner calls it. */
  label?: string;
  active: boolean;
  by?: string;
  at?: string;
  onEnd: () => void;
  words: string;
}) {
  const { t } = useTranslation();
  return (
    <li className="flex min-h-10 flex-wrap items-center gap-x-4 gap-y-1 py-1">
      {label && <span className="font-medium">{label}</span>}
      <Id value={id} length={label ? 8 : 16} />
      <span className={active ? "" : "text-soft line-through"}>
        {active ? t("grantStatus.active") : t("grantStatus.revoked")}
      </span>
      <span className="flex-1 text-xs text-soft">
        {by && t("admin.addedBy", { who: by })} {at && <Moment at={at} />}
      </span>
      {active && (
        <Button look="quiet" small aria-label={words} onClick={onEnd}>
          {t("admin.revoke")}
        </Button>
      )}
    </li>
  );
}
