// Lists: rows of 40 px (28 where the reader wants them compact), loaded page by page. `j` and `k` move between rows, Enter opens one (see app/keys).
import type { ReactNode } from "react";
import { useTranslation } from "@/app/i18n";
import { Button } from "./button";
import { Empty, Failure, Skeleton } from "./feedback";

export interface Column<Row> {
  key: string;
  title: string;
  cell: (row: Row) => ReactNode;
  /** Hidden below this width. */
  from?: "sm" | "md" | "lg";
  right?: boolean;
  /** Takes the room that is left; others take what they need. */
  wide?: boolean;
}

const FROM = { sm: "hidden sm:table-cell", md: "hidden md:table-cell", lg: "hidden lg:table-cell" };

interface Pages<Row> {
  data?: { pages: { items: Row[] }[] };
  isPending: boolean;
  isError: boolean;
  error: unknown;
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  fetchNextPage: () => unknown;
  refetch: () => unknown;
}

export function PagedTable<Row>({
  label,
  query,
  columns,
  id,
  onOpen,
  empty,
}: {
  label: string;
  query: Pages<Row>;
  columns: Column<Row>[];
  id: (row: Row) => string;
  onOpen?: (row: Row) => void;
  empty: { title: string; why: ReactNode };
}) {
  const { t } = useTranslation();
  if (query.isPending) return <Skeleton lines={8} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const rows = query.data?.pages.flatMap((page) => page.items) ?? [];
  if (rows.length === 0) return <Empty title={empty.title}>{empty.why}</Empty>;
  const look = (column: Column<Row>) =>
    `${column.from ? FROM[column.from] : ""} ${column.right ? "text-right tabular" : ""} ${column.wide ? "w-full" : ""}`;
  return (
    <>
      <table aria-label={label} className="w-full border-collapse text-sm">
        <thead>
          <tr className="border-b border-field-line text-left">
            {columns.map((column) => (
              <th
                key={column.key}
                scope="col"
                className={`kicker px-2 py-2 sm:px-3 whitespace-nowrap first:pl-1 last:pr-1 ${look(column)}`}
              >
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr
              key={id(row)}
              data-row
              // A click on a link or button in the row is its own.
              onClick={(event) =>
                !(event.target as Element).closest("a,button") && !getSelection()?.toString() && onOpen?.(row)
              }
              className={`h-10 border-b border-line focus-within:bg-wash compact:h-7 ${onOpen ? "cursor-pointer hover:bg-wash" : ""}`}
            >
              {columns.map((column) => (
                <td
                  key={column.key}
                  className={`truncate px-2 py-1.5 compact:py-0.5 compact:text-xs sm:px-3 first:pl-1 last:pr-1 ${column.wide ? "max-w-0 sm:min-w-32" : "max-sm:max-w-[42vw] first:max-sm:w-full first:max-sm:max-w-0 sm:max-w-56"} ${look(column)}`}
                >
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {query.hasNextPage && (
        <Button
          className="mt-4"
          disabled={query.isFetchingNextPage}
          onClick={() => void query.fetchNextPage()}
        >
          {t("common.more")}
        </Button>
      )}
    </>
  );
}
