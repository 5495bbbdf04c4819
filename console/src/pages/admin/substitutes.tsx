// Who decides in my place, and in whose place I decide.
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaDelegation, SchemaMe } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { makeDelegation } from "@/app/sign";
import { Button } from "@/ui/button";
import { Failure, Skeleton } from "@/ui/feedback";
import { Person } from "@/ui/person";

/** In the form of `datetime-local`, which has no time zone: the reader's own. */
function local(date: Date): string {
  const shifted = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 16);
}

const EMPTY = () => ({ delegate_ref: "", scope: "", from: local(new Date()), until: "", reason: "" });

export function Substitutes({ me }: { me: SchemaMe }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const params = { path: { actor_ref: me.actor_ref } };
  const queryKey = ["delegations", me.actor_ref];
  const query = useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/actors/{actor_ref}/delegations", {
          params: { ...params, query: { limit: 100, order: "desc", cursor: pageParam || undefined } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const reload = () => void client.invalidateQueries({ queryKey });
  const end = useMutation({
    mutationFn: ({ delegation_id }: SchemaDelegation) =>
      body(
        api.DELETE("/v1/actors/{actor_ref}/delegations/{delegation_id}", {
          params: { path: { ...params.path, delegation_id } },
        }),
      ),
    onSuccess: reload,
  });
  const all = query.data?.pages.flatMap((page) => page.items) ?? [];
  const made = all.filter((one) => one.delegator_ref === me.actor_ref);
  const others = all.filter((one) => one.delegator_ref !== me.actor_ref);
  return (
    <section>
      <h2 className="mb-2">{t("admin.substitutes")}</h2>
      <p className="mb-3 text-sm text-soft">{t("admin.substitutesWhy")}</p>
      {query.isPending && <Skeleton lines={2} />}
      {query.isError && <Failure error={query.error} />}
      {query.isSuccess && made.length === 0 && <p className="text-soft">{t("admin.substitutesNone")}</p>}
      <ul className="mb-4 divide-y divide-line">
        {made.map((one) => (
          <Row key={one.delegation_id} delegation={one} who={one.delegate_ref}>
            {one.status !== "revoked" && Date.parse(one.until) > Date.now() && (
              <Button
                look="quiet"
                small
                disabled={end.isPending}
                aria-label={t("admin.substituteEndOf", { who: one.delegate_ref })}
                onClick={() => end.mutate(one)}
              >
                {t("admin.substituteEnd")}
              </Button>
            )}
          </Row>
        ))}
      </ul>
      {end.isError && <Failure error={end.error} />}
      {me.passkeys.length > 0 ? (
        <NewSubstitute me={me} onMade={reload} />
      ) : (
        <p className="text-sm text-soft">{t("admin.substituteKey")}</p>
      )}
      {others.length > 0 && (
        <>
          <h3 className="mt-5 mb-1">{t("admin.substituteFor")}</h3>
          <ul className="divide-y divide-line">
            {others.map((one) => (
              <Row key={one.delegation_id} delegation={one} who={one.delegator_ref} />
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

function Row({
  delegation,
  who,
  children,
}: {
  delegation: SchemaDelegation;
  who: string;
  children?: React.ReactNode;
}) {
  const { t, language } = useTranslation();
  const when = (at: string) =>
    new Date(at).toLocaleString(language, { dateStyle: "medium", timeStyle: "short" });
  return (
    <li className="flex min-h-12 flex-wrap items-center gap-x-4 gap-y-1 py-1.5 text-sm">
      <span className="flex min-w-0 flex-1 flex-col">
        <span className="font-medium">
          <Person who={who} />
        </span>
        <span className="text-xs text-soft">
          <code className="font-mono [overflow-wrap:anywhere]">{delegation.scope}</code> ·{" "}
          {when(delegation.from)} – {when(delegation.until)} ·{" "}
          {t(`admin.substituteStatus.${delegation.status}`)}
          {delegation.reason && <> · “{delegation.reason}”</>}
        </span>
      </span>
      {children}
    </li>
  );
}

const FIELDS = [
  ["delegate_ref", "admin.substitute", "text"],
  ["scope", "admin.substituteScope", "text"],
  ["from", "admin.substituteFrom", "datetime-local"],
  ["until", "admin.substituteUntil", "datetime-local"],
  ["reason", "dialog.reasonMaybe", "text"],
] as const;

function NewSubstitute({ me, onMade }: { me: SchemaMe; onMade: () => void }) {
  const { t } = useTranslation();
  const id = useId();
  const [typed, setTyped] = useState(EMPTY);
  const make = useMutation({
    mutationFn: () =>
      makeDelegation(me, {
        delegate_ref: typed.delegate_ref.trim(),
        scope: typed.scope.trim(),
        from: new Date(typed.from).toISOString(),
        until: new Date(typed.until).toISOString(),
        reason: typed.reason.trim() || undefined,
      }),
    onSuccess: () => {
      setTyped(EMPTY());
      onMade();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    make.mutate();
  };
  return (
    <form onSubmit={submit} className="flex flex-wrap items-end gap-3">
      {FIELDS.map(([name, label, type]) => (
        <div key={name} className="flex flex-col gap-1">
          <label htmlFor={`${id}-${name}`} className="kicker">
            {t(label)}
          </label>
          <input
            id={`${id}-${name}`}
            type={type}
            required={name !== "reason"}
            value={typed[name]}
            onChange={(event) => setTyped({ ...typed, [name]: event.target.value })}
            className="field w-52"
          />
        </div>
      ))}
      <Button type="submit" look="primary" disabled={make.isPending}>
        {t("admin.substituteName")}
      </Button>
      {make.isError && (
        <div className="basis-full">
          <Failure error={make.error} />
        </div>
      )}
    </form>
  );
}
