// What changed between two versions: steps, values and edges.
import { useQuery } from "@tanstack/react-query";
import { useTranslation } from "react-i18next";
import { api, body } from "@/api/client";
import { Failure, Skeleton } from "@/ui/feedback";
import { Picker } from "@/ui/form";

export function Diff({
  name,
  version,
  against,
  others,
  onAgainst,
}: {
  name: string;
  version: number;
  against: number;
  others: number[];
  onAgainst: (version: number) => void;
}) {
  const { t } = useTranslation();
  const query = useQuery({
    queryKey: ["definitions", name, "diff", against, version],
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: () =>
      body(
        api.GET("/v1/definitions/{name}/versions/{version}/diff", {
          params: { path: { name, version: against }, query: { with: String(version) } },
        }),
      ),
  });
  return (
    <>
      <Picker
        id="against"
        label={t("definition.against")}
        value={String(against)}
        onChange={(value) => onAgainst(Number(value))}
        options={others.map((one): [string, string] => [String(one), String(one)])}
      />
      {query.isError && <Failure error={query.error} />}
      {query.isPending && <Skeleton />}
      {query.data && (
        <div className="mt-4 flex flex-col gap-4 text-sm">
          <Names title={t("definition.added")} names={query.data.added} look="bg-ok-wash" />
          <Names title={t("definition.removed")} names={query.data.removed} look="bg-bad-wash" />
          <Names
            title={t("definition.edgesAdded")}
            names={query.data.edges.added.map(edge)}
            look="bg-ok-wash"
          />
          <Names
            title={t("definition.edgesRemoved")}
            names={query.data.edges.removed.map(edge)}
            look="bg-bad-wash"
          />
          {query.data.changed.length > 0 && (
            <table>
              <caption className="mb-1 text-left font-medium">{t("definition.changed")}</caption>
              <tbody>
                {query.data.changed.map((change) => (
                  <tr key={change.path} className="border-t border-line align-top">
                    <th scope="row" className="py-1.5 pr-4 text-left font-mono text-xs font-normal">
                      {change.path}
                    </th>
                    <td className="bg-bad-wash px-2 py-1.5 font-mono text-xs [overflow-wrap:anywhere]">
                      {JSON.stringify(change.from)}
                    </td>
                    <td className="bg-ok-wash px-2 py-1.5 font-mono text-xs [overflow-wrap:anywhere]">
                      {JSON.stringify(change.to)}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </div>
      )}
    </>
  );
}

const edge = (edge: { from: string; to: string; label?: string | null }) =>
  `${edge.from} → ${edge.to}${edge.label ? ` (${edge.label})` : ""}`;

function Names({ title, names, look }: { title: string; names: string[]; look: string }) {
  if (names.length === 0) return null;
  return (
    <div>
      <p className="mb-1 font-medium">{title}</p>
      <ul className="flex flex-wrap gap-2">
        {names.map((name) => (
          <li key={name} className={`rounded px-2 py-0.5 ${look}`}>
            {name}
          </li>
        ))}
      </ul>
    </div>
  );
}
