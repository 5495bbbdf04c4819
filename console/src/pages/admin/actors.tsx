// Everyone who is registered, and a form for one more.
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useId, useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaActorKind } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { Failure } from "@/ui/feedback";
import { Picker } from "@/ui/form";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";
import { Secret } from "./secret";

export function Actors() {
  const { t } = useTranslation();
  const query = useInfiniteQuery({
    queryKey: ["actors"],
    queryFn: ({ pageParam }) =>
      body(api.GET("/v1/actors", { params: { query: { limit: 100, cursor: pageParam || undefined } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  return (
    <div className="flex flex-col gap-8">
      <div>
        <PagedTable
          label={t("admin.actors")}
          query={query}
          id={(row) => row.actor_ref}
          columns={[
            {
              key: "name",
              title: t("admin.name"),
              cell: (row) => (
                <Link
                  to="/admin"
                  search={{ tab: "actors", subject_ref: row.actor_ref }}
                  className="font-medium hover:underline"
                >
                  {row.display_name ?? row.actor_ref}
                </Link>
              ),
            },
            {
              key: "ref",
              title: t("admin.ref"),
              cell: (row) => <code className="font-mono text-xs">{row.actor_ref}</code>,
            },
            {
              key: "kind",
              title: t("definition.kind"),
              from: "sm",
              cell: (row) => t(`actorKind.${row.kind}`),
            },
            {
              key: "since",
              title: t("admin.since"),
              right: true,
              from: "sm",
              cell: (row) => <Moment at={row.registered_at} />,
            },
          ]}
          empty={{ title: t("admin.noActors"), why: t("admin.noActorsWhy") }}
        />
      </div>
      {query.isSuccess && <Register />}
    </div>
  );
}

function Register() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const ids = [useId(), useId(), useId()] as const;
  const [ref, setRef] = useState("");
  const [name, setName] = useState("");
  const [kind, setKind] = useState<SchemaActorKind>("human");
  const register = useMutation({
    mutationFn: () =>
      body(
        api.POST("/v1/actors", {
          body: { actor_ref: ref.trim(), kind, display_name: name.trim() || undefined },
        }),
      ),
    onSuccess: () => {
      setRef("");
      setName("");
      void client.invalidateQueries({ queryKey: ["actors"] });
    },
  });
  return (
    <section className="flex flex-col items-start gap-3 border-t border-line pt-6">
      <h2>{t("admin.register")}</h2>
      <form
        className="flex flex-wrap items-end gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          register.mutate();
        }}
      >
        <div className="flex flex-col gap-1">
          <label htmlFor={ids[0]} className="kicker">
            {t("admin.newRef")}
          </label>
          <input
            id={ids[0]}
            required
            value={ref}
            spellCheck={false}
            onChange={(event) => setRef(event.target.value)}
            className="field w-52 font-mono text-xs"
          />
        </div>
        <div className="flex flex-col gap-1">
          <label htmlFor={ids[1]} className="kicker">
            {t("admin.name")}
          </label>
          <input
            id={ids[1]}
            value={name}
            onChange={(event) => setName(event.target.value)}
            className="field w-52"
          />
        </div>
        <Picker
          id={ids[2]}
          label={t("definition.kind")}
          value={kind}
          options={[
            ["human", t("actorKind.human")],
            ["service", t("actorKind.service")],
          ]}
          onChange={(kind) => setKind(kind as SchemaActorKind)}
        />
        <Button type="submit" disabled={register.isPending}>
          {t("admin.registerNow")}
        </Button>
      </form>
      {register.isError && <Failure error={register.error} />}
      {register.data?.token && <Secret of={register.data.actor_ref} token={register.data.token} />}
    </section>
  );
}
