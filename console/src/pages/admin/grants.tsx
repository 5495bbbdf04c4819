// Who may do what: now, or at a point in time.
import {
  type UseInfiniteQueryResult,
  useInfiniteQuery,
  useMutation,
  useQueryClient,
} from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useId, useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaPageGrant } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import type { AdminSearch } from "@/app/search";
import { Button } from "@/ui/button";
import { Failure } from "@/ui/feedback";
import { Field } from "@/ui/form";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";

export function Grants({ search }: { search: AdminSearch }) {
  const { t, language } = useTranslation();
  const navigate = useNavigate();
  const ids = [useId(), useId(), useId()] as const;
  const at = search.at ? new Date(search.at) : undefined;
  const filter = {
    subject_ref: search.subject_ref,
    action_scope: search.action_scope,
    at: at && !Number.isNaN(at.getTime()) ? at.toISOString() : undefined,
  };
  const query = useInfiniteQuery({
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
  const change = (part: AdminSearch) =>
    void navigate({ to: "/admin", search: { ...search, ...part }, replace: true });
  return (
    <>
      <fieldset className="mb-4 flex flex-wrap items-end gap-3">
        <legend className="sr-only">{t("runs.filters")}</legend>
        <Field
          id={ids[0]}
          label={t("admin.ref")}
          value={search.subject_ref ?? ""}
          onChange={(value) => change({ subject_ref: value || undefined })}
        />
        <Field
          id={ids[1]}
          label={t("admin.scope")}
          value={search.action_scope ?? ""}
          onChange={(value) => change({ action_scope: value || undefined })}
        />
        <div className="flex flex-col gap-1">
          <label htmlFor={ids[2]} className="kicker">
            {t("admin.at")}
          </label>
          <input
            id={ids[2]}
            type="datetime-local"
            step={1}
            value={search.at ?? ""}
            onChange={(event) => change({ at: event.target.value || undefined })}
            className="field"
          />
        </div>
      </fieldset>
      <p className="mb-4 text-soft">
        {filter.at && at ? t("admin.inForceAt", { at: at.toLocaleString(language) }) : t("admin.everyGrant")}
      </p>
      <GrantTable query={query} />
    </>
  );
}

/** Gives a scope to an actor. */
export function GrantForm({ subject }: { subject: string }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const id = useId();
  const [scope, setScope] = useState("");
  const grant = useMutation({
    mutationFn: () =>
      body(api.POST("/v1/grants", { body: { subject_ref: subject, action_scope: scope.trim() } })),
    onSuccess: () => {
      setScope("");
      void client.invalidateQueries({ queryKey: ["grants"] });
    },
  });
  return (
    <>
      <form
        className="flex items-end gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          grant.mutate();
        }}
      >
        <div className="flex flex-col gap-1">
          <label htmlFor={id} className="kicker">
            {t("admin.grantTo", { who: subject })}
          </label>
          <input
            id={id}
            required
            value={scope}
            spellCheck={false}
            onChange={(event) => setScope(event.target.value)}
            className="field w-64 font-mono text-xs"
          />
        </div>
        <Button type="submit" disabled={grant.isPending}>
          {t("admin.grant")}
        </Button>
      </form>
      {grant.isError && <Failure error={grant.error} />}
    </>
  );
}

/** `one`: the grants of one actor, who needs no column. */
export function GrantTable({
  query,
  one = false,
}: {
  query: UseInfiniteQueryResult<{ pages: SchemaPageGrant[] }>;
  one?: boolean;
}) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: (id: string) =>
      body(api.POST("/v1/grants/{grant_id}/revoke", { params: { path: { grant_id: id } } })),
    onSuccess: () => void client.invalidateQueries({ queryKey: ["grants"] }),
  });
  return (
    <>
      {revoke.isError && <Failure error={revoke.error} />}
      <PagedTable
        label={t("admin.grants")}
        query={query}
        id={(row) => row.grant_id}
        columns={[
          ...(one
            ? []
            : [
                {
                  key: "who",
                  title: t("admin.ref"),
                  cell: (row: SchemaPageGrant["items"][number]) => (
                    <Link
                      to="/admin"
                      search={{ tab: "actors", subject_ref: row.subject_ref }}
                      className="font-medium hover:underline"
                    >
                      {row.subject_ref}
                    </Link>
                  ),
                },
              ]),
          {
            key: "scope",
            title: t("admin.scope"),
            cell: (row) => <code className="font-mono text-xs">{row.action_scope}</code>,
          },
          {
            key: "since",
            title: t("admin.since"),
            from: "md",
            cell: (row) => <Moment at={row.granted_at} />,
          },
          {
            key: "until",
            title: t("admin.until"),
            from: "sm",
            cell: (row) => (row.revoked_at ? <Moment at={row.revoked_at} /> : t(`grantStatus.${row.status}`)),
          },
          {
            key: "revoke",
            title: t("admin.change"),
            right: true,
            cell: (row) =>
              !row.revoked_at && (
                <Button
                  look="quiet"
                  small
                  aria-label={t("admin.revokeOf", { scope: row.action_scope, who: row.subject_ref })}
                  onClick={() => revoke.mutate(row.grant_id)}
                >
                  {t("admin.revoke")}
                </Button>
              ),
          },
        ]}
        empty={{ title: t("admin.noGrants"), why: t("admin.noGrantsWhy") }}
      />
    </>
  );
}
