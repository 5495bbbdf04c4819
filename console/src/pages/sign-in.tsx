// Signing in: with a passkey where the browser has one, or with a token.
import { useMutation } from "@tanstack/react-query";
import { useRouter, useSearch } from "@tanstack/react-router";
import { KeyRound } from "lucide-react";
import { type FormEvent, useId, useState } from "react";
import { useTranslation } from "@/app/i18n";
import { passkeysWork } from "@/app/passkey";
import { wayBack } from "@/app/search";
import { signIn, signInWithPasskey } from "@/app/session";
import { Brand } from "@/ui/brand";
import { Button } from "@/ui/button";
import { Failure } from "@/ui/feedback";

/** `#token=…` of a link such as `make demo` prints. It leaves the address at once; signing in stays a deliberate act. */
function tokenOfLink(): string {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) history.replaceState(history.state, "", location.pathname + location.search);
  return token ?? "";
}

export function SignIn() {
  const { t } = useTranslation();
  const router = useRouter();
  const { next, why } = useSearch({ from: "/sign-in" });
  const [token, setToken] = useState(tokenOfLink);
  const field = useId();
  const goOn = () => router.history.push(wayBack(next));
  const byToken = useMutation({ mutationFn: () => signIn(token.trim()), onSuccess: goOn });
  const byPasskey = useMutation({ mutationFn: signInWithPasskey, onSuccess: goOn });
  const failure = byToken.error ?? byPasskey.error;

  function submit(event: FormEvent) {
    event.preventDefault();
    byToken.mutate();
  }

  return (
    <main className="mx-auto flex min-h-dvh max-w-md flex-col justify-center gap-6 px-6 py-12">
      <header>
        <Brand />
        <h1 className="mt-8">{t("signIn.title")}</h1>
        <p className="mt-2 text-soft">{t("signIn.lead")}</p>
      </header>
      {why && !failure && (
        <p role="status" className="border-l-2 border-accent pl-3">
          {t(`signIn.${why}`)}
        </p>
      )}
      {failure && <Failure error={failure} />}
      {passkeysWork() && (
        <>
          <Button
            look="primary"
            className="min-h-11"
            disabled={byPasskey.isPending}
            onClick={() => byPasskey.mutate()}
          >
            <KeyRound aria-hidden size={18} />
            {t("signIn.passkey")}
          </Button>
          <p className="flex items-center gap-3 text-xs text-soft before:h-px before:flex-1 before:bg-line after:h-px after:flex-1 after:bg-line">
            {t("signIn.or")}
          </p>
        </>
      )}
      <form onSubmit={submit} className="flex flex-col gap-2">
        <label htmlFor={field} className="font-medium">
          {t("signIn.token")}
        </label>
        <input
          id={field}
          type="password"
          autoComplete="off"
          spellCheck={false}
          required
          value={token}
          onChange={(event) => setToken(event.target.value)}
          aria-describedby={`${field}-hint`}
          className="field min-h-11 font-mono text-sm"
        />
        <p id={`${field}-hint`} className="text-xs text-soft">
          {t("signIn.tokenHint")}
        </p>
        <Button type="submit" className="mt-2 min-h-11" disabled={byToken.isPending}>
          {t("signIn.button")}
        </Button>
      </form>
    </main>
  );
}
