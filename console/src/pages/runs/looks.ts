// How the states of a machine look, by the registry.
import { useMemo } from "react";
import { useTranslation } from "@/app/i18n";
import { useRegistry } from "@/ui/state";
import { plain, useTexts } from "@/ui/texts";

export interface Look {
  token: string;
  icon?: string;
  label: string;
  short: string;
  /** Everything but idle has begun. */
  reached: boolean;
  done: boolean;
}

export function useStateLooks(machineId: "step" | "workflow_run" | "proposal"): (state: string) => Look {
  const registry = useRegistry().data;
  const { language } = useTranslation();
  return useMemo(() => {
    const machine = registry?.machines.find((one) => one.scope === machineId);
    const looks = new Map(
      machine?.states.map((state): [string, Look] => {
        const texts = state.texts?.[language];
        const words = plain(state.state_code);
        return [
          state.state_code,
          {
            token: state.ui_color_token,
            icon: state.ui_icon ?? undefined,
            label: texts?.label ?? words,
            short: texts?.short ?? words,
            reached: state.semantic_class !== "idle",
            done: state.is_terminal,
          },
        ];
      }),
    );
    return (state) =>
      looks.get(state) ?? { token: "", label: plain(state), short: "", reached: false, done: false };
  }, [registry, machineId, language]);
}

/** A run that goes on looks like its colour; one that has ended or halts looks like its state. */
export function useRunLook(): (
  state: string,
  colour: string,
) => { token: string; icon?: string; label: string } {
  const states = useStateLooks("workflow_run");
  const colours = useRollupLooks();
  return (state, colour) => (state === "executing" ? colours(colour) : states(state));
}

/** How the colour of a run as a whole looks. */
export function useRollupLooks(): (colour: string) => { token: string; icon: string; label: string } {
  const registry = useRegistry().data;
  const says = useTexts();
  return useMemo(() => {
    const colours = new Map((registry?.rollup_colors ?? []).map((one) => [one.state_code, one]));
    return (colour) => {
      const one = colours.get(colour);
      return {
        token: one?.color_token ?? "",
        icon: one?.icon ?? "",
        label: one ? says(one.label_key) : plain(colour),
      };
    };
  }, [registry, says]);
}
