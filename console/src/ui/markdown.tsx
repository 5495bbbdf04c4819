// The little Markdown that our own pages use: headings, paragraphs, lists, code. Text stays text; there is no HTML in it.
import { Fragment, type ReactNode } from "react";

function inline(text: string): ReactNode[] {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part, at) => {
    const key = `${at}:${part}`;
    if (part.startsWith("`"))
      return (
        <code
          key={key}
          className="rounded bg-[color-mix(in_srgb,currentColor_9%,transparent)] px-1 font-mono text-xs"
        >
          {part.slice(1, -1)}
        </code>
      );
    if (part.startsWith("**")) return <strong key={key}>{part.slice(2, -2)}</strong>;
    return <Fragment key={key}>{part}</Fragment>;
  });
}

/** A sentence of the server's, in which names are in backticks. */
export function Said({ text }: { text: string }) {
  return inline(text);
}

/** Headings, code, and what is between blank lines, each for itself. */
function blocksOf(text: string): string[] {
  return text
    .split(/(^```[\s\S]*?^```)/m)
    .flatMap((part) =>
      part.startsWith("```") ? [part] : part.replaceAll(/^(#{1,3} .*)$/gm, "$1\n").split(/\n(?:[ \t]*\n)+/),
    )
    .map((block) => block.replace(/^\n+/, "").trimEnd())
    .filter((block) => block !== "");
}

export function Markdown({ text }: { text: string }) {
  return (
    <article className="prose flex flex-col gap-3">
      {blocksOf(text).map((block, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the text never changes
        <Block key={`${at}:${block.slice(0, 20)}`} block={block} />
      ))}
    </article>
  );
}

function Block({ block }: { block: string }) {
  const heading = /^(#{1,3}) (.*)$/.exec(block);
  if (heading) {
    const Level = (["h1", "h2", "h3"] as const)[(heading[1]?.length ?? 1) - 1] ?? "h3";
    return <Level>{heading[2]}</Level>;
  }
  if (block.startsWith("```") || block.startsWith("    "))
    return (
      // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and the keyboard must reach it
      <pre tabIndex={0} className="overflow-x-auto rounded-md bg-wash p-3 font-mono text-xs">
        {block
          .replaceAll(/^```\w*\n?|\n?```$/g, "")
          .replaceAll(block.startsWith("    ") ? /^ {4}/gm : /$^/g, "")}
      </pre>
    );
  if (block.startsWith("- "))
    return (
      <ul className="list-disc pl-5">
        {block
          .split(/^- /m)
          .filter(Boolean)
          .map((item) => (
            <li key={item}>{inline(item)}</li>
          ))}
      </ul>
    );
  return <p>{inline(block)}</p>;
}
