// How the states of a machine look, by the registry.
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { useRegistry } from "@/ui/state";

export interface Look {
  token: string;
  label: string;
  short: string;
}

export function useStateLooks(machineId: string): (state: string) => Look {
  const { i18n } = useTranslation();
  const registry = useRegistry().data;
  const language = i18n.language.startsWith("vi") ? "vi" : "en";
  return useMemo(() => {
    const machine = registry?.machines.find((machine) => machine.state_machine_id === machineId);
    const looks = new Map(
      machine?.states.map((state) => {
        const texts = state.texts?.[language];
        const plain = state.state_code.replaceAll("_", " ");
        return [
          state.state_code,
          { token: state.ui_color_token, label: texts?.label ?? plain, short: texts?.short ?? plain },
        ];
      }),
    );
    return (state) => looks.get(state) ?? { token: "", label: state.replaceAll("_", " "), short: "" };
  }, [registry, machineId, language]);
}
