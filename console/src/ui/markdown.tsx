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

export function Markdown({ text }: { text: string }) {
  const blocks = text.split(/\n{2,}|(?<=\n)(?=#)/);
  return (
    <article className="prose flex flex-col gap-3">
      {blocks.map((block, at) => {
        const key = `${at}:${block.slice(0, 20)}`;
        const heading = /^(#{1,3}) (.*)$/m.exec(block);
        if (heading && block.startsWith("#")) {
          const Level = (["h1", "h2", "h3"] as const)[(heading[1]?.length ?? 1) - 1] ?? "h3";
          const rest = block.slice(block.indexOf("\n") + 1);
          return (
            <Fragment key={key}>
              <Level>{heading[2]}</Level>
              {block.includes("\n") && rest.trim() && <p>{inline(rest)}</p>}
            </Fragment>
          );
        }
        if (block.startsWith("```"))
          return (
            <pre key={key} className="overflow-x-auto rounded-md bg-wash p-3 font-mono text-xs">
              {block.replace(/^```\w*\n?|```$/g, "")}
            </pre>
          );
        if (block.startsWith("- "))
          return (
            <ul key={key} className="list-disc pl-5">
              {block
                .split(/^- /m)
                .filter(Boolean)
                .map((item) => (
                  <li key={item}>{inline(item)}</li>
                ))}
            </ul>
          );
        return <p key={key}>{inline(block)}</p>;
      })}
    </article>
  );
}
