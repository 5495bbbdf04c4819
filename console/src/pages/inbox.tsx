// What waits for me, and what first? The first item is open beside the list on wide screens.
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaInboxItem } from "@/api/schema";
import { useTopic } from "@/api/stream";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { Empty, Failure, Skeleton } from "@/ui/feedback";
import { useName } from "@/ui/person";
import { Moment } from "@/ui/text";
import type { Recorded } from "./gate/decide";
import { Substitute } from "./gate/deciders";
import { GateView } from "./gate/gate";
import { Signed } from "./gate/signed";

export function InTray() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const { item } = useSearch({ from: "/frame/inbox" });
  const query = useInfiniteQuery({
    queryKey: ["inbox"],
    queryFn: ({ pageParam }) =>
      body(api.GET("/v1/inbox", { params: { query: { limit: 50, cursor: pageParam || undefined } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  useTopic("inbox", () => void client.invalidateQueries({ queryKey: ["inbox"] }));
  // A decided item leaves the list; what was signed stays in view until another one is opened.
  const [done, setDone] = useState<{ item: SchemaInboxItem; record: Recorded }>();
  const items = query.data?.pages.flatMap((page) => page.items) ?? [];
  if (query.isPending) return <Skeleton lines={6} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  if (items.length === 0)
    return (
      <>
        <h1 className="mb-5">{t("inbox.title")}</h1>
        {done && <Done item={done.item} record={done.record} />}
        <Empty title={t("inbox.empty")}>{t("inbox.emptyWhy")}</Empty>
      </>
    );
  const chosen = items.find((one) => one.task_ref === item);
  const open = chosen ?? (done ? undefined : items[0]);
  return (
    <div className="grid gap-8 lg:grid-cols-[22rem_1fr]">
      <section aria-label={t("inbox.title")} className={item ? "hidden lg:block" : ""}>
        <h1 className="mb-4 flex items-baseline gap-3">
          {t("inbox.title")}
          <span className="font-sans text-base font-normal text-soft tabular">
            {items.length}
            {query.hasNextPage && "+"}
          </span>
        </h1>
        <ul className="flex flex-col border-t border-line">
          {items.map((one) => (
            <li key={one.assignment_id} data-row>
              <InboxRow item={one} open={one === open} />
            </li>
          ))}
        </ul>
        {query.hasNextPage && (
          <Button className="mt-4" onClick={() => void query.fetchNextPage()}>
            {t("common.more")}
          </Button>
        )}
      </section>
      <div className={item ? "" : "hidden lg:block"}>
        {item && (
          <Link to="/inbox" className="mb-4 inline-block text-accent underline lg:hidden">
            ← {t("inbox.title")}
          </Link>
        )}
        {!open && done && <Done item={done.item} record={done.record} />}
        {open && (
          <GateView
            key={open.task_ref}
            step={open.task_ref}
            item={open}
            onRecorded={(record) => setDone({ item: open, record })}
          />
        )}
      </div>
    </div>
  );
}

function Done({ item, record }: { item: SchemaInboxItem; record: Recorded }) {
  const { t } = useTranslation();
  return (
    <div className="mb-6 flex max-w-3xl flex-col gap-3">
      <h2 className="first-letter:uppercase">
        {t("inbox.sentence", { action: item.action, subject: item.subject_ref })}
      </h2>
      <Signed record={record} />
    </div>
  );
}

/** The first plain values of a request: enough to tell one item from another. */
function mainFacts(request: unknown): [string, string | number | boolean][] {
  if (typeof request !== "object" || request === null || Array.isArray(request)) return [];
  const plain = (value: unknown): value is string | number | boolean =>
    typeof value === "number" ||
    typeof value === "boolean" ||
    (typeof value === "string" && value.length < 40);
  return Object.entries(request)
    .flatMap(([name, value]): [string, string | number | boolean][] => (plain(value) ? [[name, value]] : []))
    .slice(0, 3);
}

function InboxRow({ item, open }: { item: SchemaInboxItem; open: boolean }) {
  const { t } = useTranslation();
  const who = useName(item.requested_by);
  const facts = mainFacts(item.request);
  const late = item.due_at != null && Date.parse(item.due_at) < Date.now();
  return (
    <Link
      to="/inbox"
      search={{ item: item.task_ref }}
      aria-current={open ? "true" : undefined}
      className={`flex flex-col gap-1 border-b border-l-2 border-b-line px-0 py-3 lg:px-3 compact:gap-0 compact:py-1.5 hover:bg-wash ${open ? "border-l-transparent lg:border-l-accent lg:bg-accent-wash" : "border-l-transparent"}`}
    >
      <span className="block font-medium [overflow-wrap:anywhere] first-letter:uppercase">
        {t("inbox.sentence", { action: item.action, subject: item.subject_ref })}
      </span>
      <span className="flex flex-wrap gap-x-3 text-xs text-soft">
        {item.on_behalf_of && (
          <span className="font-medium text-warn">
            <Substitute of={item.on_behalf_of} />
          </span>
        )}
        {item.due_at && (
          <span className={late ? "font-medium text-bad" : ""}>
            {t("inbox.due")} <Moment at={item.due_at} />
          </span>
        )}
        <span>
          {who && t("inbox.asked", { who })} <Moment at={item.assigned_at} />
        </span>
        {item.quorum && (
          <span className="tabular">
            {t("inbox.quorum", { approved: item.quorum.approved, needed: item.quorum.needed })}
          </span>
        )}
      </span>
      {facts.length > 0 && (
        <span className="flex flex-wrap gap-x-4 text-xs">
          {facts.map(([name, value]) => (
            <span key={name}>
              <span className="text-soft">{name.replaceAll("_", " ")}</span>{" "}
              {typeof value === "number" ? value.toLocaleString() : String(value)}
            </span>
          ))}
        </span>
      )}
    </Link>
  );
}
