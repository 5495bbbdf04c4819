// Verify a bundle in the browser: nothing is sent anywhere, and the verdict is the one of `countersign-verify`.
import { Link } from "@tanstack/react-router";
import { FileCheck } from "lucide-react";
import { useEffect, useId, useRef, useState } from "react";
import { useTranslation } from "@/app/i18n";
import { Brand } from "@/ui/brand";
import { Button } from "@/ui/button";
import { Answer, type Verdict } from "./verdict";

type Said = { ready: true } | { answer: Verdict } | { failed: string };

/** The verifier is loaded with the page: from then on it needs no connection. */
function useVerifier() {
  const worker = useRef<Worker>(undefined);
  const [state, setState] = useState<"loading" | "ready" | "busy" | "failed">("loading");
  const [verdict, setVerdict] = useState<Verdict>();
  useEffect(() => {
    const made = new Worker(new URL("./verify.worker.ts", import.meta.url), { type: "module" });
    worker.current = made;
    made.onmessage = ({ data }: MessageEvent<Said>) => {
      if ("answer" in data) setVerdict(data.answer);
      setState("failed" in data ? "failed" : "ready");
    };
    made.onerror = () => setState("failed");
    return () => made.terminate();
  }, []);
  async function verify(file: File, key: string) {
    setVerdict(undefined);
    setState("busy");
    const bundle = await file.arrayBuffer();
    worker.current?.postMessage({ bundle, key }, [bundle]);
  }
  return { state, verdict, verify };
}

export function Verify() {
  const { t } = useTranslation();
  const [file, setFile] = useState<File>();
  const [key, setKey] = useState("");
  const [over, setOver] = useState(false);
  const { state, verdict, verify } = useVerifier();
  const input = useRef<HTMLInputElement>(null);
  const id = useId();

  function take(chosen: File | undefined, with_: string = key) {
    if (!chosen) return;
    setFile(chosen);
    void verify(chosen, with_);
  }

  return (
    <main className="mx-auto flex max-w-3xl flex-col gap-7 px-6 py-10">
      <header>
        <Link to="/ledger">
          <Brand />
        </Link>
        <h1 className="mt-8">{t("verify.title")}</h1>
        <p className="prose mt-2 text-soft">{t("verify.lead")}</p>
      </header>
      <div className="flex flex-col gap-1.5">
        <label htmlFor={`${id}-key`} className="font-medium">
          {t("verify.key")}
        </label>
        <input
          id={`${id}-key`}
          value={key}
          spellCheck={false}
          autoComplete="off"
          aria-describedby={`${id}-why`}
          onChange={(event) => setKey(event.target.value)}
          className="field min-h-11 font-mono text-xs"
        />
        <p id={`${id}-why`} className="prose text-xs text-soft">
          {t("verify.keyWhy")}
        </p>
      </div>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: dropping is an addition; the button does the same */}
      <div
        data-drop
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          take(event.dataTransfer.files[0]);
        }}
        className={`flex flex-col items-center gap-3 rounded-lg border-2 border-dashed px-6 py-10 text-center ${over ? "border-accent bg-accent-wash" : "border-strong"}`}
      >
        <FileCheck aria-hidden size={28} className="text-soft" />
        <p className="[overflow-wrap:anywhere]">{file ? file.name : t("verify.drop")}</p>
        <input
          ref={input}
          type="file"
          accept=".zip,application/zip"
          aria-label={t("verify.choose")}
          className="hidden"
          onChange={(event) => {
            take(event.target.files?.[0]);
            event.target.value = "";
          }}
        />
        <span className="flex flex-wrap justify-center gap-2">
          <Button onClick={() => input.current?.click()}>{t("verify.choose")}</Button>
          {file && (
            <Button look="primary" disabled={state !== "ready"} onClick={() => take(file)}>
              {state === "busy" ? t("ledger.verifying") : t("verify.again")}
            </Button>
          )}
        </span>
        <p className="text-xs text-soft">
          {state === "loading" && t("verify.loading")}
          {(state === "ready" || state === "busy") && t("verify.ready")}
        </p>
      </div>
      <div aria-live="polite">
        {state === "failed" && (
          <p className="rounded-lg border border-bad bg-bad-wash p-4">
            {t("verify.cannot")}{" "}
            <code className="font-mono text-xs">countersign-verify bundle.zip --key …</code>
          </p>
        )}
        {verdict && (
          <Answer
            verdict={verdict}
            onKey={(known) => {
              setKey(known);
              take(file, known);
            }}
          />
        )}
      </div>
    </main>
  );
}
