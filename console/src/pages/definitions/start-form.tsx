// Starting a run or a process: plain inputs for the types of the input schema, JSON where there is none.
import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useId, useState } from "react";
import { api, body } from "@/api/client";
import type { SchemaGraph } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { Failure } from "@/ui/feedback";

export interface Plain {
  name: string;
  type: "string" | "number" | "integer" | "boolean" | "enum";
  options: string[];
  required: boolean;
  description?: string;
}

/** The fields of an object schema whose members are all plain; undefined where JSON has to be typed. */
export function plainFields(schema: unknown): Plain[] | undefined {
  if (typeof schema !== "object" || schema === null) return undefined;
  const { properties, required } = schema as {
    properties?: Record<string, Record<string, unknown>>;
    required?: string[];
  };
  if (!properties) return undefined;
  const fields = Object.entries(properties).map(([name, part]): Plain | undefined => {
    const options =
      Array.isArray(part.enum) && part.enum.every((one) => typeof one === "string")
        ? (part.enum as string[])
        : [];
    const type = options.length > 0 ? "enum" : part.type;
    if (type !== "string" && type !== "number" && type !== "integer" && type !== "boolean" && type !== "enum")
      return undefined;
    return {
      name,
      type,
      options,
      required: required?.includes(name) ?? false,
      description: typeof part.description === "string" ? part.description : undefined,
    };
  });
  return fields.every((field) => field !== undefined) ? fields : undefined;
}

/** What was typed, as the schema's types. What was left empty is left out. */
export function toInput(fields: Plain[], typed: Record<string, string>): Record<string, unknown> {
  return Object.fromEntries(
    fields.flatMap((field): [string, unknown][] => {
      const text = typed[field.name] ?? "";
      if (text === "") return [];
      if (field.type === "boolean") return [[field.name, text === "true"]];
      return [[field.name, field.type === "number" || field.type === "integer" ? Number(text) : text]];
    }),
  );
}

const BOX = "field w-full max-w-md";

export function StartForm({ definition, graph }: { definition: string; graph: SchemaGraph }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const form = useId();
  const workflow = graph.kind === "workflow";
  const fields = workflow ? plainFields(graph.input_schema) : [];
  const [subject, setSubject] = useState("");
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [json, setJson] = useState("{}");
  const start = useMutation({
    mutationFn: async () => {
      if (!workflow) {
        const made = await body(api.POST("/v1/processes", { body: { definition, subject_ref: subject } }));
        return navigate({ to: "/processes/$id", params: { id: made.instance_id } });
      }
      const input = fields ? toInput(fields, typed) : JSON.parse(json);
      const made = await body(
        api.POST("/v1/runs", { body: { definition, subject_ref: subject || undefined, input } }),
      );
      return navigate({ to: "/runs/$id", params: { id: made.run_id } });
    },
  });
  function submit(event: FormEvent) {
    event.preventDefault();
    start.mutate();
  }
  return (
    <form onSubmit={submit} className="flex max-w-xl flex-col gap-4">
      <div className="flex flex-col gap-1">
        <label htmlFor={`${form}-subject`} className="font-medium">
          {t("runs.subject")}
        </label>
        <input
          id={`${form}-subject`}
          required={!workflow}
          value={subject}
          onChange={(event) => setSubject(event.target.value)}
          className={BOX}
        />
        <p className="text-xs text-soft">{t("definition.subjectHint")}</p>
      </div>
      {fields?.map((field) => (
        <div key={field.name} className="flex flex-col gap-1">
          <label htmlFor={`${form}-${field.name}`} className="font-medium">
            {field.name}
            {field.required && <span className="text-soft"> ({t("definition.required")})</span>}
          </label>
          {field.type === "enum" || field.type === "boolean" ? (
            <select
              id={`${form}-${field.name}`}
              required={field.required}
              value={typed[field.name] ?? ""}
              onChange={(event) => setTyped({ ...typed, [field.name]: event.target.value })}
              className={BOX}
            >
              <option value="" />
              {field.type === "enum" ? (
                field.options.map((option) => <option key={option}>{option}</option>)
              ) : (
                <>
                  <option value="true">{t("common.yes")}</option>
                  <option value="false">{t("common.no")}</option>
                </>
              )}
            </select>
          ) : (
            <input
              id={`${form}-${field.name}`}
              type={field.type === "string" ? "text" : "number"}
              step={field.type === "integer" ? 1 : "any"}
              required={field.required}
              value={typed[field.name] ?? ""}
              onChange={(event) => setTyped({ ...typed, [field.name]: event.target.value })}
              className={BOX}
            />
          )}
          {field.description && <p className="text-xs text-soft">{field.description}</p>}
        </div>
      ))}
      {workflow && !fields && (
        <div className="flex flex-col gap-1">
          <label htmlFor={`${form}-json`} className="font-medium">
            {t("definition.json")}
          </label>
          <textarea
            id={`${form}-json`}
            rows={6}
            value={json}
            onChange={(event) => setJson(event.target.value)}
            className="field py-2 font-mono text-xs"
          />
        </div>
      )}
      {start.isError && <Failure error={start.error} />}
      <Button type="submit" look="primary" disabled={start.isPending} className="self-start">
        {start.isPending ? t("dialog.recording") : t("definition.start")}
      </Button>
    </form>
  );
}
