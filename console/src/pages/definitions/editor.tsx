// Writing a definition: YAML, problems at their line and column as one types, a picture beside it, and publishing.
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { Check, CircleAlert, TriangleAlert } from "lucide-react";
import { useDeferredValue, useEffect, useRef, useState } from "react";
import { api, body } from "@/api/client";
import { queries } from "@/api/query";
import { useTranslation } from "@/app/i18n";
import type { DefinitionSearch } from "@/app/search";
import { Button } from "@/ui/button";
import { Failure } from "@/ui/feedback";
import { Said } from "@/ui/markdown";
import { PageHead } from "@/ui/page";
import { CodeField, goTo } from "./code-field";
import { Picture } from "./definition";

const yaml = (text: string) => ({
  body: text,
  bodySerializer: () => text,
  headers: { "content-type": "application/yaml" },
});

export function Editor() {
  const { t } = useTranslation();
  const { from } = useSearch({ from: "/frame/definitions/new" });
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [view, setView] = useState<DefinitionSearch>({});
  const area = useRef<HTMLTextAreaElement>(null);
  const original = useQuery({
    queryKey: ["definitions", from, "newest"],
    enabled: from !== undefined,
    queryFn: () => body(api.GET("/v1/definitions/{name}", { params: { path: { name: from ?? "" } } })),
  });
  useEffect(() => {
    if (original.data) setText(original.data.document);
  }, [original.data]);
  const settled = useSettled(text, 400);
  const check = useQuery({
    queryKey: ["validate", settled],
    enabled: settled.trim() !== "",
    queryFn: () => body(api.POST("/v1/definitions/validate", yaml(settled))),
    placeholderData: (before) => before,
  });
  const publish = useMutation({
    mutationFn: () => body(api.POST("/v1/definitions", yaml(text))),
    onSuccess: (made) => {
      void queries.invalidateQueries({ queryKey: ["definitions"] });
      void navigate({ to: "/definitions/$name", params: { name: made.name } });
    },
  });
  const problems = check.data?.problems ?? [];
  const errors = problems.filter((problem) => problem.level !== "warning");
  const drawn = useDeferredValue(check.data?.graph);

  return (
    <>
      <PageHead
        trail={
          <Link to="/definitions" className="hover:underline">
            {t("page.definitions")}
          </Link>
        }
        title={from ?? t("definition.write")}
        actions={
          <Button
            look="primary"
            disabled={publish.isPending || text.trim() === "" || errors.length > 0}
            onClick={() => publish.mutate()}
          >
            {publish.isPending ? t("dialog.recording") : t("definition.publish")}
          </Button>
        }
      />
      <div className="grid gap-6 xl:grid-cols-2">
        <div className="flex min-w-0 flex-col gap-3">
          <label htmlFor="yaml" className="sr-only">
            {t("definition.source")}
          </label>
          <CodeField
            id="yaml"
            area={area}
            value={text}
            problems={errors}
            onChange={setText}
            describedBy="problems"
          />
          {publish.isError && <Failure error={publish.error} />}
        </div>
        <div className="min-w-0">
          <ul id="problems" aria-live="polite" className="mb-4 flex flex-col gap-1 text-sm">
            {problems.map((problem) => (
              <li key={`${problem.line}:${problem.column}:${problem.message}`}>
                <button
                  type="button"
                  onClick={() => goTo(area.current, problem.line, problem.column)}
                  className="flex gap-2 text-left hover:underline"
                >
                  {problem.level === "warning" ? (
                    <TriangleAlert
                      role="img"
                      aria-label={t("definition.warning")}
                      size={15}
                      className="mt-0.5 shrink-0 text-warn"
                    />
                  ) : (
                    <CircleAlert aria-hidden size={15} className="mt-0.5 shrink-0 text-bad" />
                  )}
                  <span>
                    <span className="tabular text-soft">
                      {problem.line}:{problem.column}
                    </span>{" "}
                    <Said text={problem.message} />
                  </span>
                </button>
              </li>
            ))}
            {check.data?.valid && problems.length === 0 && (
              <li className="flex items-center gap-2 text-ok">
                <Check aria-hidden size={15} strokeWidth={2.5} />
                {t("definition.valid")}
              </li>
            )}
            {text.trim() === "" && <li className="text-soft">{t("definition.begin")}</li>}
          </ul>
          {check.isError && <Failure error={check.error} />}
          {drawn && (
            <Picture
              graph={drawn}
              label={t("definition.view")}
              search={view}
              go={(part) => setView({ ...view, ...part })}
            />
          )}
        </div>
      </div>
    </>
  );
}

function useSettled(value: string, ms: number): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
