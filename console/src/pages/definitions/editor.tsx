// Writing a definition: YAML, problems at their line and column as one types, a picture beside it, and publishing.
import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { CircleAlert } from "lucide-react";
import { useDeferredValue, useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { api, body, send } from "@/api/client";
import { queries } from "@/api/query";
import type { SchemaDefinitionPublished, SchemaValidation } from "@/api/schema";
import { Button } from "@/ui/button";
import { Failure } from "@/ui/feedback";
import { Picture } from "./definition";

const yaml = (text: string) => ({ type: "application/yaml", text });

export function Editor() {
  const { t } = useTranslation();
  const { from } = useSearch({ from: "/frame/definitions/new" });
  const navigate = useNavigate();
  const [text, setText] = useState("");
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
    queryFn: () => send<SchemaValidation>("POST", "/v1/definitions/validate", yaml(settled)),
    placeholderData: (before) => before,
  });
  const publish = useMutation({
    mutationFn: () => send<SchemaDefinitionPublished>("POST", "/v1/definitions", yaml(text)),
    onSuccess: (made) => {
      void queries.invalidateQueries({ queryKey: ["definitions"] });
      void navigate({ to: "/definitions/$name", params: { name: made.name } });
    },
  });
  const problems = check.data?.problems ?? [];
  const drawn = useDeferredValue(check.data?.graph);

  function goTo(line: number, column: number) {
    const field = area.current;
    if (!field) return;
    const lines = text.split("\n");
    const at = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + column - 1;
    field.focus();
    field.setSelectionRange(at, at + 1);
    field.scrollTop = Math.max(0, (line - 5) * 20);
  }

  return (
    <>
      <h1 className="mb-4">{from ?? t("definition.write")}</h1>
      <div className="grid gap-6 xl:grid-cols-2">
        <div className="flex min-w-0 flex-col gap-3">
          <label htmlFor="yaml" className="sr-only">
            {t("definition.source")}
          </label>
          <textarea
            ref={area}
            id="yaml"
            value={text}
            spellCheck={false}
            onChange={(event) => setText(event.target.value)}
            aria-describedby="problems"
            className="h-[min(60dvh,38rem)] resize-y rounded-md border border-strong bg-raised p-3 font-mono text-xs leading-5 whitespace-pre"
          />
          {publish.isError && <Failure error={publish.error} />}
          <Button
            look="primary"
            className="self-start"
            disabled={publish.isPending || text.trim() === "" || problems.length > 0}
            onClick={() => publish.mutate()}
          >
            {publish.isPending ? t("dialog.recording") : t("definition.publish")}
          </Button>
        </div>
        <div className="min-w-0">
          <ul id="problems" aria-live="polite" className="mb-4 flex flex-col gap-1 text-sm">
            {problems.map((problem) => (
              <li key={`${problem.line}:${problem.column}:${problem.message}`}>
                <button
                  type="button"
                  onClick={() => goTo(problem.line, problem.column)}
                  className="flex gap-2 text-left hover:underline"
                >
                  <CircleAlert aria-hidden size={15} className="mt-0.5 shrink-0 text-bad" />
                  <span>
                    <span className="tabular text-soft">
                      {problem.line}:{problem.column}
                    </span>{" "}
                    {problem.message}
                  </span>
                </button>
              </li>
            ))}
            {check.data?.valid && <li className="text-ok">{t("definition.valid")}</li>}
          </ul>
          {check.isError && <Failure error={check.error} />}
          {drawn && <Picture graph={drawn} label={t("definition.view")} />}
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
