// Who may do what, since when?
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useId, useState } from "react";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import type { AdminSearch } from "@/app/search";
import { useMe } from "@/app/session";
import { Button } from "@/ui/button";
import { Failure } from "@/ui/feedback";
import { Field } from "@/ui/form";
import { PagedTable } from "@/ui/table";
import { Tabs } from "@/ui/tabs";
import { Moment } from "@/ui/text";
import { Account } from "./account";

export function Admin() {
  const { t } = useTranslation();
  const search = useSearch({ from: "/frame/admin" });
  const navigate = useNavigate();
  const { data: me } = useMe();
  const tab = search.tab ?? "account";
  return (
    <>
      <h1>{t("page.admin")}</h1>
      <Tabs
        label={t("page.admin")}
        value={tab}
        onChange={(tab) =>
          void navigate({ to: "/admin", search: { tab: tab === "account" ? undefined : tab } })
        }
        tabs={[
          ["account", t("admin.account")],
          ["actors", t("admin.actors")],
          ["grants", t("admin.grants")],
        ]}
      />
      <div className="mt-5">
        {tab === "account" && me && <Account me={me} />}
        {tab === "actors" && <Actors />}
        {tab === "grants" && <Grants search={search} />}
      </div>
    </>
  );
}

function Actors() {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const query = useInfiniteQuery({
    queryKey: ["actors"],
    queryFn: ({ pageParam }) =>
      body(api.GET("/v1/actors", { params: { query: { limit: 100, cursor: pageParam || undefined } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  return (
    <PagedTable
      label={t("admin.actors")}
      query={query}
      id={(row) => row.actor_ref}
      onOpen={(row) => void navigate({ to: "/admin", search: { tab: "grants", subject_ref: row.actor_ref } })}
      columns={[
        { key: "name", title: t("admin.name"), cell: (row) => row.display_name ?? row.actor_ref },
        {
          key: "ref",
          title: t("admin.ref"),
          cell: (row) => <code className="font-mono text-xs">{row.actor_ref}</code>,
        },
        {
          key: "kind",
          title: t("definition.kind"),
          from: "sm",
          cell: (row) => t(`actorKind.${row.kind}`, row.kind),
        },
        {
          key: "since",
          title: t("admin.since"),
          right: true,
          cell: (row) => <Moment at={row.registered_at} />,
        },
      ]}
      empty={{ title: t("admin.noActors"), why: t("admin.noActorsWhy") }}
    />
  );
}

function Grants({ search }: { search: AdminSearch }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const client = useQueryClient();
  const ids = [useId(), useId(), useId()];
  const [scope, setScope] = useState("");
  const filter = {
    subject_ref: search.subject_ref,
    action_scope: search.action_scope,
    at: search.at ? new Date(search.at).toISOString() : undefined,
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
  const again = () => void client.invalidateQueries({ queryKey: ["grants"] });
  const grant = useMutation({
    mutationFn: () =>
      body(api.POST("/v1/grants", { body: { subject_ref: search.subject_ref ?? "", action_scope: scope } })),
    onSuccess: () => {
      setScope("");
      again();
    },
  });
  const revoke = useMutation({
    mutationFn: (id: string) =>
      body(api.POST("/v1/grants/{grant_id}/revoke", { params: { path: { grant_id: id } } })),
    onSuccess: again,
  });
  const change = (part: AdminSearch) =>
    void navigate({ to: "/admin", search: { ...search, ...part }, replace: true });
  return (
    <>
      <fieldset className="mb-4 flex flex-wrap items-end gap-3">
        <legend className="sr-only">{t("runs.filters")}</legend>
        <Field
          id={ids[0] ?? ""}
          label={t("admin.ref")}
          value={search.subject_ref ?? ""}
          onChange={(value) => change({ subject_ref: value || undefined })}
        />
        <Field
          id={ids[1] ?? ""}
          label={t("admin.scope")}
          value={search.action_scope ?? ""}
          onChange={(value) => change({ action_scope: value || undefined })}
        />
        <div className="flex flex-col gap-1">
          <label htmlFor={ids[2]} className="text-xs text-soft">
            {t("admin.at")}
          </label>
          <input
            id={ids[2]}
            type="datetime-local"
            value={search.at ?? ""}
            onChange={(event) => change({ at: event.target.value || undefined })}
            className="min-h-9 rounded-md border border-strong bg-raised px-2.5 text-sm"
          />
        </div>
      </fieldset>
      {search.subject_ref && (
        <form
          className="mb-4 flex items-end gap-2"
          onSubmit={(event) => {
            event.preventDefault();
            grant.mutate();
          }}
        >
          <div className="flex flex-col gap-1">
            <label htmlFor="new-scope" className="text-xs text-soft">
              {t("admin.grantTo", { who: search.subject_ref })}
            </label>
            <input
              id="new-scope"
              required
              value={scope}
              onChange={(event) => setScope(event.target.value)}
              className="min-h-9 w-64 rounded-md border border-strong bg-raised px-2.5 font-mono text-xs"
            />
          </div>
          <Button type="submit" disabled={grant.isPending}>
            {t("admin.grant")}
          </Button>
        </form>
      )}
      {(grant.error ?? revoke.error) && <Failure error={grant.error ?? revoke.error} />}
      <PagedTable
        label={t("admin.grants")}
        query={query}
        id={(row) => row.grant_id}
        columns={[
          { key: "who", title: t("admin.ref"), cell: (row) => row.subject_ref },
          {
            key: "scope",
            title: t("admin.scope"),
            cell: (row) => <code className="font-mono text-xs">{row.action_scope}</code>,
          },
          {
            key: "status",
            title: t("runs.state"),
            from: "sm",
            cell: (row) => t(`grantStatus.${row.status}`, row.status),
          },
          {
            key: "since",
            title: t("admin.since"),
            from: "md",
            cell: (row) => <Moment at={row.granted_at} />,
          },
          {
            key: "revoke",
            title: "",
            right: true,
            cell: (row) =>
              row.revoked_at ? (
                <Moment at={row.revoked_at} />
              ) : (
                <Button
                  look="quiet"
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
