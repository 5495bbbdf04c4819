// Where an actor is signed in. Ending a session takes effect at once.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useRouter } from "@tanstack/react-router";
import { MonitorSmartphone } from "lucide-react";
import { api, body } from "@/api/client";
import { useTranslation } from "@/app/i18n";
import { signOut } from "@/app/session";
import { Button } from "@/ui/button";
import { Failure, Skeleton } from "@/ui/feedback";
import { Id, Moment } from "@/ui/text";

const BROWSERS = ["Firefox", "Edg", "OPR", "Chrome", "Safari"] as const;
const SYSTEMS = ["Windows", "Android", "iPhone", "iPad", "Mac OS", "Linux"] as const;

/** What a browser calls itself, in two words: `Firefox, Linux`. */
function browser(agent: string | null | undefined, t: ReturnType<typeof useTranslation>["t"]): string {
  const name = BROWSERS.find((one) => agent?.includes(`${one}/`));
  const system = SYSTEMS.find((one) => agent?.includes(one));
  const called = name && ({ Edg: "Edge", OPR: "Opera" }[name as string] ?? name);
  const words = [called, system].filter(Boolean).join(", ");
  return words || agent || t("admin.otherSession");
}

export function Sessions({ actor }: { actor: string }) {
  const { t } = useTranslation();
  const router = useRouter();
  const client = useQueryClient();
  const queryKey = ["actors", actor, "sessions"];
  const query = useQuery({
    queryKey,
    queryFn: () =>
      body(api.GET("/v1/actors/{actor_ref}/sessions", { params: { path: { actor_ref: actor } } })),
  });
  const end = useMutation({
    mutationFn: (session_id: string) =>
      body(
        api.DELETE("/v1/actors/{actor_ref}/sessions/{session_id}", {
          params: { path: { actor_ref: actor, session_id } },
        }),
      ),
    onSettled: () => void client.invalidateQueries({ queryKey }),
  });
  // Whoever may see the sessions may see the keys, with what their owner calls them.
  const keys = useQuery({
    queryKey: ["actors", actor, "keys"],
    queryFn: () => body(api.GET("/v1/actors/{actor_ref}/keys", { params: { path: { actor_ref: actor } } })),
  });
  const label = (id: string) => keys.data?.keys.find((key) => key.key_id === id)?.label;
  if (query.isPending) return <Skeleton lines={2} />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  if (query.data.items.length === 0) return <p className="text-soft">{t("admin.noSessions")}</p>;
  return (
    <>
      {end.isError && <Failure error={end.error} />}
      <ul className="w-full divide-y divide-line text-sm">
        {query.data.items.map((session) => {
          return (
            <li
              key={session.session_id}
              className="flex min-h-12 flex-wrap items-center gap-x-4 gap-y-1 py-1.5"
            >
              <MonitorSmartphone aria-hidden size={16} className="text-soft" />
              <span className="flex flex-1 flex-col">
                <span
                  className={session.current ? "font-medium" : ""}
                  title={session.user_agent ?? undefined}
                >
                  {session.current ? t("admin.thisSession") : browser(session.user_agent, t)}
                </span>
                <span className="flex flex-wrap gap-x-1.5 text-xs text-soft">
                  {session.begun_at && (
                    <span>
                      {t("admin.begun")} <Moment at={session.begun_at} />,
                    </span>
                  )}
                  <span>
                    {t("admin.used")} <Moment at={session.seen_at} />,
                  </span>
                  <span>
                    {t("admin.endsUnused")} <Moment at={session.expires_at} />,
                  </span>
                  <span>
                    {t("admin.begunWith")}{" "}
                    {label(session.credential_id) ?? <Id value={session.credential_id} length={12} />}
                  </span>
                </span>
              </span>
              {session.current ? (
                <Button
                  look="quiet"
                  small
                  onClick={() => void signOut().then(() => router.navigate({ to: "/sign-in" }))}
                >
                  {t("admin.signOutHere")}
                </Button>
              ) : (
                <Button
                  look="quiet"
                  small
                  disabled={end.isPending}
                  onClick={() => end.mutate(session.session_id)}
                >
                  {t("admin.endSession")}
                </Button>
              )}
            </li>
          );
        })}
      </ul>
    </>
  );
}
