// The keys, shown by `?`.
import { useTranslation, wordsFor } from "@/app/i18n";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { PLACES } from "./keys";

export default function KeyHelp({ onClose }: { onClose: () => void }) {
  const { t } = useTranslation();
  const places = Object.entries(PLACES).map(([key, to]): [string[], string] => [
    ["g", key],
    wordsFor(t, "page", to.slice(1)),
  ]);
  const move: [string[], string][] = [
    [["/"], t("keys.search")],
    [["j"], t("keys.next")],
    [["k"], t("keys.previous")],
    [["Enter"], t("keys.open")],
    [["."], t("keys.actions")],
    [["a"], t("keys.approve")],
    [["r"], t("keys.reject")],
    [["?"], t("keys.help")],
  ];
  const graph: [string[], string][] = [
    [["←", "↑", "→", "↓"], t("keys.arrows")],
    [["+"], t("graph.in")],
    [["-"], t("graph.out")],
    [["0"], t("graph.fit")],
  ];
  return (
    <Dialog labelledBy="keys" onClose={onClose} className="w-[min(44rem,calc(100vw-2rem))]">
      <div className="p-6">
        <div className="mb-4 flex items-center justify-between">
          <h2 id="keys">{t("keys.title")}</h2>
          <Button onClick={onClose}>{t("common.close")}</Button>
        </div>
        <div className="grid gap-x-10 gap-y-6 sm:grid-cols-2">
          <Keys title={t("keys.everywhere")} keys={move} />
          <div className="flex flex-col gap-6">
            <Keys title={t("keys.goTo")} keys={places} />
            <Keys title={t("run.graph")} keys={graph} />
          </div>
        </div>
      </div>
    </Dialog>
  );
}

function Keys({ title, keys }: { title: string; keys: [string[], string][] }) {
  return (
    <section>
      <h3 className="mb-2">{title}</h3>
      <dl className="grid grid-cols-[6rem_1fr] gap-y-1.5">
        {keys.map(([pressed, words]) => (
          <div key={words} className="contents">
            <dt className="flex gap-1">
              {pressed.map((key) => (
                <kbd key={key} className="key">
                  {key}
                </kbd>
              ))}
            </dt>
            <dd>{words}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
