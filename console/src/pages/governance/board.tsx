// What is wrong now? Eight rows, always all: a light, a count, a sentence and its evidence.
import { Link } from "@tanstack/react-router";
import { useBoard } from "@/api/governance";
import type { SchemaProblemCount } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import { Failure, Skeleton } from "@/ui/feedback";
import { PageHead } from "@/ui/page";
import { useRegistry } from "@/ui/state";
import { Moment } from "@/ui/text";
import { Evidence, Governed, Light, useSentence } from "./words";

export function Governance() {
  const { t } = useTranslation();
  return (
    <Governed title={t("page.governance")}>
      <PageHead title={t("page.governance")} />
      <Board />
    </Governed>
  );
}

function Board() {
  const { t } = useTranslation();
  const board = useBoard(true);
  // Without the registry a light would have no words.
  const registry = useRegistry();
  if (board.isPending || registry.isPending) return <Skeleton lines={8} />;
  if (board.isError) return <Failure error={board.error} retry={() => void board.refetch()} />;
  return (
    <ul aria-label={t("governance.categories")} className="border-t border-line">
      {board.data.items.map((row) => (
        <Row key={row.category} row={row} />
      ))}
    </ul>
  );
}

function Row({ row }: { row: SchemaProblemCount }) {
  const { t } = useTranslation();
  const says = useSentence();
  const name = wordsFor(t, "governance.category", row.category);
  const quiet = row.count === 0;
  return (
    <li
      data-row
      className="relative grid grid-cols-[1fr_auto] items-center gap-x-4 gap-y-0.5 border-b border-line py-3 focus-within:bg-wash hover:bg-wash sm:grid-cols-[10.5rem_3.5rem_1fr_auto] sm:px-2 compact:py-1.5"
    >
      <span className={quiet ? "text-soft" : "font-medium"}>
        <Light of={row.light} />
      </span>
      <span
        className={`tabular text-right font-serif text-lg ${quiet ? "text-soft" : "font-semibold"} sm:text-xl`}
      >
        {row.count.toLocaleString()}
      </span>
      <span className="col-span-2 min-w-0 sm:col-span-1 sm:pl-4">
        <Open category={row.category}>{name}</Open>
        <span className={`text-soft ${row.summary ? "block" : "hidden sm:block"}`}>
          {says(row)}
          {row.oldest_at && (
            <>
              {" "}
              · {t("governance.oldest")} <Moment at={row.oldest_at} />
            </>
          )}
        </span>
      </span>
      {/* Above the link that covers the row. */}
      <span className="relative col-span-2 text-xs sm:col-span-1">
        {row.summary && <Evidence summary={row.summary} />}
      </span>
    </li>
  );
}

/** The link covers its row. Dead letters have a list of their own: they can be read whole. */
function Open({ category, children }: { category: string; children: string }) {
  const look = "block font-medium before:absolute before:inset-0 hover:underline";
  if (category === "dlq")
    return (
      <Link to="/governance/dead-letters" className={look}>
        {children}
      </Link>
    );
  return (
    <Link to="/governance/problems/$category" params={{ category }} className={look}>
      {children}
    </Link>
  );
}
