// The fields that an action needs beside a reason, as the server lists them.
import { useId } from "react";
import type { SchemaOfferedAction } from "@/api/schema";
import { useTranslation, wordsFor } from "@/app/i18n";
import { useRegistry } from "@/ui/state";
import { useTexts } from "@/ui/texts";

export type Given = Record<string, string>;

/** What the dialog asks for. A reason has its own field, and the approval comes with the action. */
const asked = (action: SchemaOfferedAction) =>
  action.needs.filter((field) => field !== "reason" && field !== "approval_id" && field !== "signature");

/** The body of the request, from what was typed. */
export function given(action: SchemaOfferedAction, typed: Given): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  if (action.command === "open_gate") body.action = action.gate;
  if (action.action === "transition") body.to = action.to_state;
  for (const field of asked(action)) {
    const value = typed[field]?.trim() ?? "";
    if (field === "output") body.output = value === "" ? null : JSON.parse(value);
    else if (field === "deadline") body.deadline = new Date(value).toISOString();
    else if (value !== "") body[field] = value;
  }
  if (action.approval_id) body.approval_id = action.approval_id;
  return body;
}

export function Needs({
  action,
  value,
  onChange,
}: {
  action: SchemaOfferedAction;
  value: Given;
  onChange: (value: Given) => void;
}) {
  const id = useId();
  const { t } = useTranslation();
  const says = useTexts();
  const registry = useRegistry().data;
  const options = (field: string): [string, string][] | undefined => {
    if (field === "waiting_facet") {
      const facets = registry?.machines.find((one) => one.scope === "step")?.facets ?? [];
      return facets
        .filter((facet) => facet.state_code === "waiting")
        .map((facet) => [facet.facet_code, says(facet.ui_label_i18n_key)]);
    }
    const words = registry?.vocabularies?.find((one) => one.vocabulary === field)?.words;
    return words?.map((word) => [word.code, says(word.label_key)]);
  };
  return asked(action).map((field) => {
    const choices = options(field);
    const bind = {
      id: `${id}-${field}`,
      required: field !== "output",
      value: value[field] ?? "",
      onChange: (event: { target: { value: string } }) => onChange({ ...value, [field]: event.target.value }),
      className: "field w-full",
    };
    return (
      <div key={field} className="flex flex-col gap-1.5">
        <label htmlFor={bind.id} className="font-medium">
          {wordsFor(t, "needs", field)}
        </label>
        {choices ? (
          <select {...bind}>
            <option value="" />
            {choices.map(([code, words]) => (
              <option key={code} value={code}>
                {words}
              </option>
            ))}
          </select>
        ) : field === "output" ? (
          <textarea {...bind} rows={4} placeholder="{}" className="field w-full py-2 font-mono text-xs" />
        ) : (
          <input {...bind} type={field === "deadline" ? "datetime-local" : "text"} />
        )}
      </div>
    );
  });
}
