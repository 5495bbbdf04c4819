// Writing a definition: it is published, or proposed to those who approve its next version.
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { api, body, Refusal } from "@/api/client";
import { queries } from "@/api/query";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { Failure } from "@/ui/feedback";
import { PageHead } from "@/ui/page";
import { ProposalFields, type Said, toBody } from "../proposals/fields";
import { useCheck, useSettled, Writing, yaml } from "./writing";

/** What a document calls itself, as a suggestion; the server compares it. */
const nameIn = (text: string) => /^name:\s*["']?([\w.-]+)/m.exec(text)?.[1] ?? "";

/** The newest version of a definition; 0 where there is none. */
async function newestOf(name: string): Promise<number> {
  try {
    const { version } = await body(api.GET("/v1/definitions/{name}", { params: { path: { name } } }));
    return version;
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) return 0;
    throw error;
  }
}

export function Editor() {
  const { t } = useTranslation();
  const { from, propose } = useSearch({ from: "/frame/definitions/new" });
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [said, setSaid] = useState<Said>({ reason: "", affected: "" });
  const original = useQuery({
    queryKey: ["definitions", from, "newest"],
    enabled: from !== undefined,
    // A version that comes meanwhile must not replace what was typed.
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    queryFn: () => body(api.GET("/v1/definitions/{name}", { params: { path: { name: from ?? "" } } })),
  });
  useEffect(() => {
    if (original.data) setText(original.data.document);
  }, [original.data]);
  const check = useCheck(useSettled(text, 400));
  const publish = useMutation({
    mutationFn: () => body(api.POST("/v1/definitions", yaml(text))),
    onSuccess: (made) => {
      void queries.invalidateQueries({ queryKey: ["definitions"] });
      void navigate({ to: "/definitions/$name", params: { name: made.name } });
    },
  });
  const kind = check.data?.graph?.kind ?? original.data?.kind;
  const make = useMutation({
    mutationFn: async () => {
      const target = from ?? nameIn(text);
      const base_version = original.data?.version ?? (await newestOf(target));
      const proposal = { proposal_kind: kind ?? "", target, base_version, document: text, ...toBody(said) };
      return body(api.POST("/v1/proposals", { body: proposal }));
    },
    onSuccess: ({ proposal_id: id }) => {
      void queries.invalidateQueries({ queryKey: ["proposals"] });
      void navigate({ to: "/proposals/$id", params: { id } });
    },
  });
  const turn = (propose: boolean) =>
    void navigate({ to: "/definitions/new", search: { from, propose: propose || undefined }, replace: true });
  const gated = publish.error instanceof Refusal && publish.error.code === "gate-not-cleared";
  const act = propose ? make : publish;
  const missing = propose ? said.reason.trim() === "" || !kind : check.errors.length > 0;

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
          <span className="flex flex-wrap items-center gap-x-5 gap-y-2">
            <label className="flex min-h-9 cursor-pointer items-center gap-2">
              <input
                type="checkbox"
                role="switch"
                aria-checked={propose ?? false}
                className="toggle"
                checked={propose ?? false}
                onChange={(event) => turn(event.target.checked)}
              />
              {t("proposal.mode")}
            </label>
            <Button
              look="primary"
              disabled={act.isPending || text.trim() === "" || missing}
              onClick={() => act.mutate()}
            >
              {act.isPending ? t("dialog.recording") : t(propose ? "proposal.save" : "definition.publish")}
            </Button>
          </span>
        }
      >
        {propose && <p className="prose text-soft">{t("proposal.modeWhy")}</p>}
      </PageHead>
      {propose && <ProposalFields said={said} onSaid={setSaid} />}
      {original.isError && <Failure error={original.error} />}
      <Writing text={text} onText={setText} check={check}>
        {act.isError && <Failure error={act.error} />}
        {gated && !propose && (
          <p className="flex flex-wrap items-center gap-3">
            {t("proposal.gated")}
            <Button onClick={() => turn(true)}>{t("proposal.instead")}</Button>
          </p>
        )}
      </Writing>
    </>
  );
}
