// Who may do what, since when?
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useTranslation } from "@/app/i18n";
import { useMe } from "@/app/session";
import { Skeleton } from "@/ui/feedback";
import { Tabs } from "@/ui/tabs";
import { Account } from "./account";
import { Actor } from "./actor";
import { Actors } from "./actors";
import { Grants } from "./grants";
import { Schedules } from "./schedules";

export function Admin() {
  const { t } = useTranslation();
  const search = useSearch({ from: "/frame/admin" });
  const navigate = useNavigate();
  const { data: me } = useMe();
  if (!me) return <Skeleton lines={8} />;
  const tab = search.tab ?? "account";
  const tabs: [string, string][] = [["account", t("admin.account")]];
  // What the server would refuse is not offered. An address that leads there says why.
  if (me.scopes.includes("actors:manage") || tab === "actors") tabs.push(["actors", t("admin.actors")]);
  if (me.scopes.includes("permissions:manage") || tab === "grants") tabs.push(["grants", t("admin.grants")]);
  const reads = (scope: string) => scope === "runs:read" || scope.startsWith("runs:read:");
  if (me.scopes.some(reads) || tab === "schedules") tabs.push(["schedules", t("admin.schedules")]);
  return (
    <>
      <h1>{tabs.length > 1 ? t("page.admin") : t("admin.account")}</h1>
      {tabs.length > 1 && (
        <Tabs
          label={t("page.admin")}
          value={tab}
          onChange={(tab) =>
            void navigate({ to: "/admin", search: { tab: tab === "account" ? undefined : tab } })
          }
          tabs={tabs}
        />
      )}
      <div className="mt-6">
        {tab === "account" && <Account me={me} />}
        {tab === "actors" && (search.subject_ref ? <Actor actor={search.subject_ref} /> : <Actors />)}
        {tab === "grants" && <Grants search={search} />}
        {tab === "schedules" && <Schedules me={me} />}
      </div>
    </>
  );
}
