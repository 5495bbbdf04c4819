// Who may do what, since when?
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import { useMe } from "@/app/session";
import { Tabs } from "@/ui/tabs";
import { Account } from "./account";
import { Actor } from "./actor";
import { Actors } from "./actors";
import { Grants } from "./grants";

export function Admin() {
  const { t } = useTranslation();
  const search = useSearch({ from: "/frame/admin" });
  const navigate = useNavigate();
  const { data: me } = useMe();
  const tab = search.tab ?? "account";
  return (
    <>
      <h1>{t("page.admin")}</h1>
      <Tabs
        label={t("page.admin")}
        value={tab}
        onChange={(tab) =>
          void navigate({ to: "/admin", search: { tab: tab === "account" ? undefined : tab } })
        }
        tabs={[
          ["account", t("admin.account")],
          ["actors", t("admin.actors")],
          ["grants", t("admin.grants")],
        ]}
      />
      <div className="mt-6">
        {tab === "account" && me && <Account me={me} />}
        {tab === "actors" && (search.subject_ref ? <Actor actor={search.subject_ref} /> : <Actors />)}
        {tab === "grants" && <Grants search={search} />}
      </div>
    </>
  );
}
