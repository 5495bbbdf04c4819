// The search of the whole console: pages, runs and processes by subject or id, definitions, and steps of what is open.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { FileText, Gavel, GitBranch, type LucideIcon, Search, Spline, Workflow } from "lucide-react";
import { type KeyboardEvent, useEffect, useId, useState } from "react";
import { api, body } from "@/api/client";
import { queries } from "@/api/query";
import type { SchemaGraph, SchemaRunView } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import { Dialog } from "@/ui/dialog";
import { PLACES } from "./keys";

interface Hit {
  id: string;
  kind: "step" | "run" | "process" | "definition" | "page";
  name: string;
  note?: string;
  go: () => void;
}

const ICONS: Record<Hit["kind"], LucideIcon> = {
  step: Spline,
  run: Workflow,
  process: Gavel,
  definition: GitBranch,
  page: FileText,
};
/** Of a subject or an id, so many characters are looked for at least. */
const LEAST = 3;

export default function Palette({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const list = useId();
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const found = useHits(typed, onClose);
  const chosen = found[Math.min(at, found.length - 1)];
  useEffect(() => {
    document.getElementById(`${list}-${chosen?.id}`)?.scrollIntoView({ block: "nearest" });
  }, [list, chosen?.id]);
  function onKey(event: KeyboardEvent) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) setAt((at + by + found.length) % Math.max(found.length, 1));
    else if (event.key === "Enter") chosen?.go();
    else return;
    event.preventDefault();
  }
  return (
    <Dialog label={t("search.title")} onClose={onClose} className="mt-[12dvh] mb-auto">
      <div className="flex items-center gap-3 border-b border-line px-4">
        <Search aria-hidden size={18} className="shrink-0 text-soft" />
        <input
          autoFocus
          role="combobox"
          aria-expanded={found.length > 0}
          aria-controls={list}
          aria-activedescendant={chosen && `${list}-${chosen.id}`}
          aria-label={t("search.title")}
          placeholder={t("search.hint")}
          value={typed}
          onChange={(event) => {
            setTyped(event.target.value);
            setAt(0);
          }}
          onKeyDown={onKey}
          className="min-h-14 w-full bg-transparent text-base outline-none placeholder:text-soft"
        />
      </div>
      <div
        id={list}
        role="listbox"
        aria-label={t("search.found")}
        className="max-h-[50dvh] overflow-y-auto p-2"
      >
        {found.map((hit) => {
          const Icon = ICONS[hit.kind];
          return (
            // biome-ignore lint/a11y/useFocusableInteractive: the focus stays in the input
            // biome-ignore lint/a11y/useKeyWithClickEvents: the input handles the keys
            <div
              key={hit.id}
              id={`${list}-${hit.id}`}
              role="option"
              aria-selected={hit === chosen}
              onClick={hit.go}
              className="flex min-h-10 cursor-pointer items-center gap-3 rounded-md px-3 aria-selected:bg-accent-wash"
            >
              <Icon aria-hidden size={16} className="shrink-0 text-soft" />
              <span className="min-w-0 flex-1 truncate">{hit.name}</span>
              <span className="truncate text-xs text-soft">{hit.note ?? t(`search.${hit.kind}`)}</span>
            </div>
          );
        })}
      </div>
      {found.length === 0 && <p className="px-5 pb-5 text-soft">{t("search.nothing")}</p>}
    </Dialog>
  );
}

function useHits(typed: string, onClose: () => void): Hit[] {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const wanted = useSettled(typed.trim());
  const lower = typed.trim().toLowerCase();
  const like = (name: string) => lower !== "" && name.toLowerCase().includes(lower);
  const then = (go: () => unknown) => () => {
    onClose();
    void go();
  };
  const runs = useQuery({
    queryKey: ["search", "runs", wanted],
    enabled: wanted.length >= LEAST,
    retry: false,
    queryFn: () => body(api.GET("/v1/runs", { params: { query: { q: wanted, limit: 8, order: "desc" } } })),
  });
  const processes = useQuery({
    queryKey: ["search", "processes", wanted],
    enabled: wanted.length >= LEAST,
    retry: false,
    queryFn: () =>
      body(api.GET("/v1/processes", { params: { query: { q: wanted, limit: 8, order: "desc" } } })),
  });
  const definitions = useQuery({
    queryKey: ["search", "definitions"],
    retry: false,
    queryFn: () => body(api.GET("/v1/definitions", { params: { query: { limit: 200 } } })),
  });

  const pages = Object.entries(PLACES).map(([key, to]) => ({
    key,
    to,
    name: wordsFor(t, "page", to.slice(1)),
  }));
  return [
    ...useSteps(like, then),
    ...(runs.data?.items ?? []).map(
      (run): Hit => ({
        id: run.run_id,
        kind: "run",
        name: run.subject_ref || run.run_id,
        note: run.definition,
        go: then(() => navigate({ to: "/runs/$id", params: { id: run.run_id } })),
      }),
    ),
    ...(processes.data?.items ?? []).map(
      (one): Hit => ({
        id: one.instance_id,
        kind: "process",
        name: one.subject_ref,
        note: one.declaration_ref,
        go: then(() => navigate({ to: "/processes/$id", params: { id: one.instance_id } })),
      }),
    ),
    ...(definitions.data?.items ?? [])
      .filter((one) => like(one.name))
      .slice(0, 8)
      .map(
        (one): Hit => ({
          id: `definition-${one.name}`,
          kind: "definition",
          name: one.name,
          go: then(() => navigate({ to: "/definitions/$name", params: { name: one.name } })),
        }),
      ),
    ...pages
      .filter((page) => lower === "" || like(page.name))
      .map(
        (page): Hit => ({
          id: `page-${page.key}`,
          kind: "page",
          name: page.name,
          note: `g ${page.key}`,
          go: then(() => navigate({ to: page.to })),
        }),
      ),
  ];
}

/** Steps of the run that is open, from what the page has loaded already. */
function useSteps(like: (name: string) => boolean, then: (go: () => unknown) => () => void): Hit[] {
  const navigate = useNavigate();
  const { id } = useParams({ strict: false });
  const run = queries
    .getQueriesData<SchemaRunView>({ queryKey: ["runs", id, "view"] })
    .map(([, data]) => data)
    .find((data) => data !== undefined);
  const graph = queries.getQueryData<SchemaGraph>(["graph", run?.definition]);
  if (!id || !run) return [];
  return (graph?.nodes ?? [])
    .filter((node) => like(node.name))
    .slice(0, 8)
    .map((node) => ({
      id: `step-${node.step_seq}`,
      kind: "step",
      name: node.name,
      go: then(() =>
        navigate({
          to: "/runs/$id",
          params: { id },
          search: (old) => ({ ...old, tab: undefined, step: node.name }),
        }),
      ),
    }));
}

function useSettled(value: string): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), 150);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}
