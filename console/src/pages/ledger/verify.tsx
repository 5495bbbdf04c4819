// Verify a bundle in the browser: nothing is sent anywhere, and the verdict is the one of `countersign-verify`.
import { Link } from "@tanstack/react-router";
import { FileCheck, ShieldAlert, ShieldCheck } from "lucide-react";
import { useId, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/button";

interface Verdict {
  unreadable?: string;
  needs_key?: boolean;
  bundled_key?: string | null;
  result?: "verified" | "failed-verification";
  records?: number;
  instances?: number;
  claims?: {
    claim: string;
    title: string;
    result: string;
    checked: number;
    findings: { code: string; detail: string }[];
  }[];
}

function run(bundle: ArrayBuffer, key: string): Promise<Verdict> {
  const worker = new Worker(new URL("./verify.worker.ts", import.meta.url), { type: "module" });
  return new Promise((done, fail) => {
    worker.onmessage = ({ data }: MessageEvent<{ answer?: Verdict; failed?: string }>) => {
      worker.terminate();
      if (data.answer) done(data.answer);
      else fail(new Error(data.failed));
    };
    worker.onerror = () => fail(new Error("worker"));
    worker.postMessage({ bundle, key });
  });
}

export function Verify() {
  const { t } = useTranslation();
  const [file, setFile] = useState<File>();
  const [key, setKey] = useState("");
  const [verdict, setVerdict] = useState<Verdict>();
  const [failed, setFailed] = useState(false);
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();

  async function check(chosen: File | undefined) {
    if (!chosen) return;
    setBusy(true);
    setFailed(false);
    setVerdict(undefined);
    try {
      setVerdict(await run(await chosen.arrayBuffer(), key));
    } catch {
      setFailed(true);
    }
    setBusy(false);
  }

  return (
    <main className="mx-auto flex max-w-3xl flex-col gap-6 px-6 py-10">
      <header>
        <Link to="/ledger" className="text-sm text-accent underline">
          {t("page.ledger")}
        </Link>
        <h1 className="mt-3">{t("verify.title")}</h1>
        <p className="mt-2 text-soft">{t("verify.lead")}</p>
      </header>
      <div className="flex flex-col gap-1">
        <label htmlFor={`${id}-key`} className="font-medium">
          {t("verify.key")}
        </label>
        <input
          id={`${id}-key`}
          value={key}
          spellCheck={false}
          onChange={(event) => setKey(event.target.value)}
          className="min-h-11 rounded-md border border-strong bg-raised px-3 font-mono text-xs"
        />
        <p className="text-xs text-soft">{t("verify.keyWhy")}</p>
      </div>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: dropping is an addition; the button below does the same */}
      <div
        onDragOver={(event) => event.preventDefault()}
        onDrop={(event) => {
          event.preventDefault();
          const dropped = event.dataTransfer.files[0];
          setFile(dropped);
          void check(dropped);
        }}
        className="flex flex-col items-center gap-3 rounded-lg border-2 border-dashed border-strong px-6 py-10 text-center"
      >
        <FileCheck aria-hidden size={28} className="text-soft" />
        <p>{file ? file.name : t("verify.drop")}</p>
        <input
          ref={input}
          type="file"
          accept=".zip,application/zip"
          aria-label={t("verify.choose")}
          className="sr-only"
          tabIndex={-1}
          onChange={(event) => {
            const chosen = event.target.files?.[0];
            setFile(chosen);
            void check(chosen);
          }}
        />
        <span className="flex gap-2">
          <Button onClick={() => input.current?.click()}>{t("verify.choose")}</Button>
          {file && (
            <Button look="primary" disabled={busy} onClick={() => void check(file)}>
              {busy ? t("ledger.verifying") : t("verify.again")}
            </Button>
          )}
        </span>
      </div>
      <div aria-live="polite">
        {failed && (
          <p className="rounded-lg border border-bad bg-bad-wash p-4">
            {t("verify.cannot")}{" "}
            <code className="font-mono text-xs">countersign-verify bundle.zip --key …</code>
          </p>
        )}
        {verdict && <Answer verdict={verdict} onKey={setKey} />}
      </div>
    </main>
  );
}

function Answer({ verdict, onKey }: { verdict: Verdict; onKey: (key: string) => void }) {
  const { t } = useTranslation();
  if (verdict.unreadable)
    return (
      <p role="alert" className="rounded-lg border border-bad bg-bad-wash p-4">
        {t("verify.unreadable")} {verdict.unreadable}
      </p>
    );
  if (verdict.needs_key)
    return (
      <div className="flex flex-col items-start gap-2 rounded-lg border border-warn bg-warn-wash p-4">
        <p>{t("verify.needsKey")}</p>
        {verdict.bundled_key && (
          <>
            <code className="font-mono text-xs [overflow-wrap:anywhere]">{verdict.bundled_key}</code>
            <Button onClick={() => onKey(verdict.bundled_key ?? "")}>{t("verify.compared")}</Button>
          </>
        )}
      </div>
    );
  const good = verdict.result === "verified";
  return (
    <section className={`rounded-lg border p-5 ${good ? "border-ok bg-ok-wash" : "border-bad bg-bad-wash"}`}>
      <p className={`flex items-center gap-3 font-serif text-lg ${good ? "text-ok" : "text-bad"}`}>
        {good ? <ShieldCheck aria-hidden /> : <ShieldAlert aria-hidden />}
        {good ? t("verify.good") : t("verify.bad")}
      </p>
      <p className="mt-1 text-sm text-soft">
        {t("verify.counts", { records: verdict.records ?? 0, instances: verdict.instances ?? 0 })}
      </p>
      <ul className="mt-4 flex flex-col gap-2 text-sm">
        {verdict.claims?.map((claim) => (
          <li key={claim.claim}>
            <span className="flex flex-wrap items-baseline gap-x-3">
              <strong className="font-medium">{claim.title}</strong>
              <span className={claim.findings.length > 0 ? "text-bad" : "text-soft"}>
                {claim.result.replaceAll("-", " ")}
              </span>
            </span>
            {claim.findings.length > 0 && (
              <ul className="list-disc pl-5">
                {claim.findings.slice(0, 20).map((finding) => (
                  <li key={`${finding.code}:${finding.detail}`}>
                    <code className="font-mono text-xs">{finding.code}</code> {finding.detail}
                  </li>
                ))}
              </ul>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
