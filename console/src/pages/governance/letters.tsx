// Dead letters: deliveries that were given up, and dead steps of held runs.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { Send, Spline } from "lucide-react";
import { api, body } from "@/api/client";
import type { SchemaDeadLetter } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import type { ProblemSearch } from "@/app/search";
import { PageHead } from "@/ui/page";
import { PagedTable } from "@/ui/table";
import { Moment } from "@/ui/text";
import { AT_ONCE, StateFilter, useLight, wanted } from "./category";
import { Subject } from "./subject";
import { Governed, Standing } from "./words";

export function DeadLetters() {
  const { t } = useTranslation();
  const title = wordsFor(t, "governance.category", "dlq");
  return (
    <Governed title={title}>
      <PageHead
        trail={
          <Link to="/governance" className="hover:underline">
            {t("page.governance")}
          </Link>
        }
        title={title}
      />
      <Letters title={title} />
    </Governed>
  );
}

function Letters({ title }: { title: string }) {
  const { t } = useTranslation();
  const search = useSearch({ from: "/frame/governance/dead-letters" });
  const navigate = useNavigate();
  const light = useLight("dlq");
  const query = useInfiniteQuery({
    queryKey: ["governance", "dead-letters", search.state],
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/dead-letters", {
          params: {
            query: {
              state: wanted(search.state),
              limit: AT_ONCE,
              order: "desc",
              cursor: pageParam || undefined,
            },
          },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: (before) => before,
  });
  const change = (part: ProblemSearch) =>
    void navigate({
      to: "/governance/dead-letters",
      search: { state: search.state, ...part },
      replace: true,
    });
  return (
    <>
      <StateFilter id="letter-state" search={search} change={change} />
      <PagedTable
        label={title}
        query={query}
        id={(row) => row.dead_letter_id}
        onOpen={(row) =>
          void navigate({ to: "/governance/dead-letters/$id", params: { id: row.dead_letter_id } })
        }
        columns={[
          {
            key: "what",
            title: t("governance.what"),
            wide: true,
            cell: (row) => (
              <Link
                to="/governance/dead-letters/$id"
                params={{ id: row.dead_letter_id }}
                className="hover:underline"
              >
                {row.run_id ? <Subject run={row.run_id} step={row.step} /> : row.webhook}{" "}
                <span className="text-soft">{row.detail}</span>
              </Link>
            ),
          },
          { key: "kind", title: t("definition.kind"), from: "sm", cell: (row) => <Kind of={row} /> },
          {
            key: "webhook",
            title: t("governance.webhook"),
            from: "lg",
            cell: (row) => row.webhook ?? <span className="text-soft">—</span>,
          },
          {
            key: "state",
            title: t("runs.state"),
            from: "sm",
            cell: (row) => <Standing state={row.state} light={light} />,
          },
          {
            key: "since",
            title: t("governance.since"),
            right: true,
            cell: (row) => <Moment at={row.since} />,
          },
        ]}
        empty={{
          title: t(search.state === undefined ? "governance.noneOpen" : "governance.none"),
          why: t("governance.opens.dlq"),
        }}
      />
    </>
  );
}

export function Kind({ of }: { of: Pick<SchemaDeadLetter, "kind"> }) {
  const { t } = useTranslation();
  const Icon = of.kind === "step" ? Spline : Send;
  return (
    <span className="inline-flex items-center gap-2 align-top text-soft">
      <Icon aria-hidden size={15} />
      {t(`governance.letter.${of.kind}`)}
    </span>
  );
}
